"""Messages that are not what their sum is: every flaw is in what single silos and users send."""

import jax
import jax.numpy as jnp
from _damage import SMALL, all_damaged, noisy, scaled


def the_same(honest, self, key, silo, k, message):
    return honest(jax.random.fold_in(jax.random.key(0), k), silo, k, message)


def first_silo(honest, self, key, silo, k, message):
    encoded = jnp.round(message * self.scale).astype(jnp.int32).astype(jnp.uint32)
    return jnp.where(silo == 0, honest(key, silo, k, message), encoded)


def in_order(honest, self, key, messages):
    m, n, size, width = messages.shape
    return jnp.moveaxis(messages, 2, 0).reshape(size, m * n * width)


def all_ones(honest, self, key, silo, k, message):
    sent = honest(key, silo, k, message)
    noise = jnp.arange(self.width) >= 2 * jnp.asarray(self.g)[0]
    return jnp.where(noise & (sent >= 0), 1, sent)


PAIR, SERVER = dict(n_agents=2), dict(n_agents=2, trust="central")
USERS = dict(n_agents=2, batch=1, trust="local", release="input_perturbation")
MESSAGES = {  # change of the mechanism, and its options
    "messages without noise": (noisy(randomize=lambda *given: given[-1]), PAIR),  # the sum at the server has its noise
    "known noise in messages": (noisy(randomize=the_same), PAIR),  # and differences of messages have none
    "noise in the first silo only": (scaled(std=[1, 1e-3]), PAIR),
    "shares of one silo only": (
        noisy(randomize=first_silo), dict(n_agents=4, n_syncs=4, trust="secagg", release="blt"),
    ),
    "bits not mixed": (noisy(third_party=in_order), dict(n_syncs=1, **SMALL | {"n_agents": 8})),  # no shuffler
    "noise bits all one": (noisy(randomize=all_ones), dict(n_syncs=1, **SMALL)),
    "server forgets its noise": (noisy(analyze=lambda honest, self, key, k, shown: shown.sum(0)), SERVER),
    "average noise of users": (  # divided by their number
        noisy(randomize=lambda honest, self, *given: (honest(*given) + 2 * given[-1]) / 3), USERS,
    ),
}  # fmt: skip


def broken_messages():
    return all_damaged(MESSAGES, messages=True)
