"""Parts of one's own that say more than they do: nothing is certified of them, and the audit sees why."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from _damage import changed, damaged, honest, trusting, turned

import fedbandit_jax as fb
from fedbandit_jax.privacy.trust import Central


@fb.pytree
class Clipped(Central):
    """Gaussian noise cut off at two standard deviations."""

    def noise(self, key, size):
        return jnp.clip(Central.noise(self, key, size), -2 * self.std, 2 * self.std)


@fb.pytree
class Seeded(Central):
    """Noise from 256 seeds: each of them can be tried."""

    def noise(self, key, size):
        return self.std * jax.random.normal(jax.random.key(jax.random.bits(key) % 256), (size,))


@fb.pytree
class Quantile(Central):
    """Noise from eight bits, by the inverse of the distribution function: it has no tails, and its values repeat."""

    def noise(self, key, size):
        u = (jax.random.bits(key, (size,), jnp.uint8).astype(jnp.float32) + 0.5) / 256
        return self.std * jax.scipy.special.ndtri(u)


@fb.pytree
class Peeking(fb.Algorithm):
    """A loop of one's own around a certified one, which hands users on what the last user of the silo answered."""

    algo: fb.Algorithm

    @property
    def batch(self):
        return self.algo.batch

    def init(self, key, spec):
        return self.algo.init(key, spec), jnp.zeros((spec.n_agents, spec.dim))

    def download(self, state, offered):
        return self.algo.download(state[0], offered), state[1]

    def act(self, key, t, local, offered):
        return jnp.argmax(jnp.einsum("mkd,md->mk", offered.contexts, local[1]), 1).astype(jnp.int32)

    def learn(self, t, local, offered, arms, rewards):
        inner, record = self.algo.learn(t, local[0], offered, arms, rewards)
        x = jnp.take_along_axis(offered.contexts, arms[:, None, None], 1)[:, 0]
        return (inner, x * jnp.clip(rewards, 0, 1)[:, None]), record

    def sync(self, key, k, state, local, records):
        inner, report = self.algo.sync(key, k, state[0], local[0], self.algo.gather(records))
        return (inner, local[1]), report

    def view(self, state):
        return self.algo.view(state[0])


def own(name, kind):
    """A trust model of one's own in place of the server's."""
    return damaged(name, trusting(lambda trust: turned(kind, trust)), trust="central", release="blt")


def broken_law():
    """Atoms at both ends, and nothing behind them."""
    return own("own noise, clipped", Clipped)


def broken_seed():
    """Few seeds."""
    return own("own noise from 256 seeds", Seeded)


def broken_bits():
    """Few bits."""
    return own("own noise from 8 bits", Quantile)


def broken_release():
    """A release of one's own whose sensitivity was given for another matrix: half of the noise."""
    change = lambda trust: replace(trust, std=trust.std / np.float32(2))  # noqa: E731
    return damaged("own release, wrong sensitivity", trusting(change), trust="central", release="sqrt_toeplitz")


def broken_loop():
    """The next user's arm tells what the last one answered."""
    return changed(honest(), "own loop peeks", lambda bound: Peeking(algo=bound))
