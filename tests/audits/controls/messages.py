"""Messages that are not what their sum is: every flaw is in what single silos and users send."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from _damage import SMALL, damaged, noisy, trusting

import fedbandit_jax as fb
from fedbandit_jax.privacy.trust import Central, Local, SecAgg, SiloLocal, VectorSum


@fb.pytree
class Bare(SiloLocal):
    """Silos send their messages as they are."""

    def randomize(self, key, silo, k, message):
        return message


@fb.pytree
class SameForAll(SiloLocal):
    """Every silo draws the same noise."""

    def randomize(self, key, silo, k, message):
        return SiloLocal.randomize(self, jax.random.fold_in(jax.random.key(0), k), silo, k, message)


@fb.pytree
class FirstShare(SecAgg):
    """Only the first silo adds its share."""

    def randomize(self, key, silo, k, message):
        encoded = jnp.round(message * self.scale).astype(jnp.int32).astype(jnp.uint32)
        return jnp.where(silo == 0, SecAgg.randomize(self, key, silo, k, message), encoded)


@fb.pytree
class Unmixed(VectorSum):
    """The bits leave the shuffler in the order in which silos and users sent them."""

    def third_party(self, key, messages):
        m, n, size, width = messages.shape
        return jnp.moveaxis(messages, 2, 0).reshape(size, m * n * width)


@fb.pytree
class NoBits(VectorSum):
    """The noise bits are all ones."""

    def randomize(self, key, silo, k, message):
        sent = VectorSum.randomize(self, key, silo, k, message)
        noise = jnp.arange(self.width) >= 2 * jnp.asarray(self.g)[0]
        return jnp.where(noise & (sent >= 0), 1, sent)


@fb.pytree
class Trusting(Central):
    """A server that adds up and forgets its noise."""

    def analyze(self, key, k, shown):
        return shown.sum(0)


@fb.pytree
class Averaged(Local):
    """A silo that tells the average noise of its users for their sum."""

    def randomize(self, key, silo, k, message):
        return message + (Local.randomize(self, key, silo, k, message) - message) / 3


def broken_messages():
    """The sum at the server has its noise, the messages do not."""
    return damaged("messages without noise", noisy(Bare), n_agents=2, messages=True)


def broken_same_noise():
    """Differences of messages have no noise, and noise is known."""
    return damaged("known noise in messages", noisy(SameForAll), n_agents=2, messages=True)


def broken_other_silos():
    """Only the first silo adds noise: its users are protected, all others are not."""
    change = trusting(lambda trust: replace(trust, std=trust.std * np.float32([1, 1e-3])))
    return damaged("noise in the first silo only", change, n_agents=2, messages=True)


def broken_share():
    """One share of the noise instead of all."""
    options = dict(n_agents=10, n_syncs=4, messages=True, trust="secagg", release="blt")
    return damaged("shares of one silo only", noisy(FirstShare), **options)


def broken_shuffler():
    """A shuffler that does not shuffle: the bits of every user can be counted by themselves."""
    return damaged("bits not mixed", noisy(Unmixed), n_syncs=1, messages=True, **SMALL | {"n_agents": 8})


def broken_bits():
    """Noise bits that are not random."""
    return damaged("noise bits all one", noisy(NoBits), n_syncs=1, messages=True, **SMALL)


def broken_server():
    """The message path of the central model without its noise."""
    return damaged("server forgets its noise", noisy(Trusting), n_agents=2, messages=True, trust="central")


def broken_users():
    """Local noise divided by the number of users."""
    options = dict(n_agents=2, batch=1, messages=True, trust="local", release="input_perturbation")
    return damaged("average noise of users", noisy(Averaged), **options)
