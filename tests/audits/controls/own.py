"""User-defined parts that say more than they do: nothing is certified of them, and the audit sees why."""

import jax
import jax.numpy as jnp
from _damage import all_damaged, changed, honest, noisy, override


def clipped(honest, self, key, size):
    """Atoms at both ends, two standard deviations away, and nothing behind them."""
    return jnp.clip(honest(key, size), -2 * self.std, 2 * self.std)


def seeded(honest, self, key, size):
    """Noise from 64 seeds: each of them can be tried."""
    return self.std * jax.random.normal(jax.random.key(jax.random.bits(key) % 64), (size,))


def quantile(honest, self, key, size):
    """Noise from eight bits, by the inverse of the distribution function: it has no tails, and its values repeat."""
    u = (jax.random.bits(key, (size,), jnp.uint8).astype(jnp.float32) + 0.5) / 256
    return self.std * jax.scipy.special.ndtri(u)


BLT = dict(release="blt")
OWN = {  # change of the mechanism, and its release
    "own noise, clipped": (noisy(noise=clipped), BLT),
    "own noise from 64 seeds": (noisy(noise=seeded), BLT),
    "own noise from 8 bits": (noisy(noise=quantile), BLT),
}


def broken_parts():
    return all_damaged(OWN, trust="central")


def shows_the_last(honest, self, t, local, offered, arms, rewards):
    after, record = honest(t, local, offered, arms, rewards)
    x = jnp.take_along_axis(offered.contexts, arms[:, None, None], 1)[:, 0]
    return after._replace(prepared=x * jnp.clip(rewards, 0, 1)[:, None]), record


def broken_loop():
    """A user-defined loop: the next user's arm tells what the last one of the batch answered."""
    peeking = dict(
        download=lambda honest, self, state, offered: honest(state, offered)._replace(prepared=jnp.zeros((1, 2))),
        act=lambda honest, self, key, t, local, offered: jnp.argmax(offered.contexts @ local.prepared[0], 1),
        learn=shows_the_last,
    )
    return changed(honest(), "own loop peeks", lambda bound: override(bound, **peeking))
