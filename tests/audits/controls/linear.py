"""Noise on sums of linear statistics that has the wrong size or the wrong law, or is not there."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from _damage import SMALL, all_damaged, honest, noisy, override, private, scaled, stepping, trusting, turned, weaker

import fedbandit_jax as fb
from fedbandit_jax.audits import BUDGET, linear
from fedbandit_jax.privacy.trust import SiloLocal


def forgets(honest, self, *given):
    """Draws its noise and does not add it."""
    _, after = honest(*given)
    return after.sums.high, after._replace(view=after.sums.high)


def forgets_the_last(honest, self, key, k, *given):
    """Only users of the last batch are not protected at all."""
    statistics, after = honest(key, k, *given)
    shown = jnp.where(k == self.release.n_syncs, after.sums.high, statistics)
    return shown, after._replace(view=shown)


def adapts(honest, self, key, k, state, total, x, y):
    """Less noise for users with small rewards: the local sensitivity."""
    trust = replace(self.trust, std=self.trust.std * jnp.where(y.sum() > 0, 1.0, 0.5))
    return honest.func(replace(self, trust=trust), key, k, state, total, x, y)


def reusing(every):
    """The key of the first of `every` releases in all of them."""

    def step(honest, self, key, k, state, *given):
        first = jnp.where((k - 1) % every == 0, jax.random.key_data(key), state.trust)
        statistics, after = honest(jax.random.wrap_key_data(first), k, state, *given)
        return statistics, after._replace(trust=first)

    return stepping(step, init=lambda honest, self, dim: honest(dim)._replace(trust=jnp.zeros(2, jnp.uint32)))


def shows_sums(honest, self, *given):
    """The server is shown what every silo sums up, and adds the noise itself."""
    statistics, after = honest(*given)
    return statistics, after._replace(view=self.statistic.pack(after.sums.high))


def fades(honest, self, state, k, message):
    """The noise of a discounted sum, on the sum of all batches."""
    recent, prefix = state
    return honest((recent, 0.5 * prefix), k, message)


def counts_in_bytes(honest, self, k):
    """Users of a node, of whom 300 become 44, as `jnp.bitwise_count` counts: an overflow that this library once had."""
    level = jnp.bitwise_count((k & -k) - 1)
    return level, self.n_batch * (jnp.uint8(1) << level)


def seeded(honest, self, key, size):
    """Noise from 64 seeds: each of them can be tried."""
    return self.std * jax.random.normal(jax.random.key(jax.random.bits(key) % 64), (size,))


def allowing(**changes):
    """Noise for users who come less than silos allow."""
    return lambda mechanism: replace(mechanism, users=replace(mechanism.users, **changes))


LINEAR, USERS = fb.privacy.Linear, fb.privacy.Users
APART = dict(release="blt", batch=3, unit=USERS(3, per_batch=1, apart=3))
SILOS = dict(n_agents=2, release="blt", trust="central")
AWAY = dict(n_agents=2, trust="secagg", release="input_perturbation", dropouts=1, drops=True)
MATRIX = dict(trust="silo_local_matrix", release="tree")
MANY = dict(n_agents=30, batch=10, n_syncs=1, trust="shuffle_vector_sum")
DAMAGES = {  # change of the mechanism, and its options
    "sensitivity of zero_out": (scaled(std=(2 / 4.5) ** 0.5), {}),  # Delta_J^2 of removal, where users are replaced
    "blt without its sensitivity": (scaled(std=4.5**0.5 / 2.7808), dict(release="blt")),  # as of one message
    "visits not counted": (allowing(visits=100), APART | dict(unit=USERS(2, per_batch=1, apart=2))),
    "batches not apart": (allowing(apart=1), APART),
    "visits of a batch not bounded": (allowing(per_batch=3), APART),
    "silos that count separately": (allowing(silos=2), SILOS | dict(unit=USERS(4, per_batch=2, silos="together"))),
    "noise for one silo": (scaled(std=0.5), SILOS | dict(unit=USERS(2, per_batch=1, silos=2))),
    "shares for silos that are always there": (scaled(share=0.5**0.5), AWAY),
    "three of four silos add no noise": (scaled(share=0.5), dict(n_agents=4, trust="secagg", release="blt")),
    "a sixteenth of the bits": (
        trusting(lambda trust: replace(trust, b=np.ceil(trust.b / 16))), dict(n_syncs=2, **SMALL)
    ),
    "noise never added": (stepping(forgets), {}),
    "last release without noise": (stepping(forgets_the_last), {}),
    "constant key": (stepping(lambda honest, self, key, *given: honest(jax.random.key(7), *given)), {}),
    "one draw for all releases": (reusing(8), {}),
    "one draw for two releases": (reusing(2), {}),
    "noise by local sensitivity": (stepping(adapts, needs_users=True), dict(release="blt")),
    "noise forgotten": (
        lambda one: replace(one, release=override(one.release, decode=fades)), dict(release=fb.privacy.Discounted(0.5)),
    ),
    "matrix without noise on x x'": (noisy(noise=lambda honest, self, *by: honest(*by) * (jnp.arange(5) > 2)), MATRIX),
    "own noise from 64 seeds": (noisy(noise=seeded), dict(trust="central", release="blt")),
    "users counted in 8 bits": (noisy(_node=counts_in_bytes), MANY),
}  # fmt: skip


def broken_mechanisms():
    return all_damaged(DAMAGES)


def broken_other_algorithms():
    """Three visits under the noise of one; a median of messages; and a slow policy with half of the runs."""
    three = honest(batch=3, unit=USERS(3))
    median = linear(private(release="blt").replace(aggregate="median"), n_agents=3)
    half = fb.privacy.Mechanism(BUDGET, "input_perturbation", statistic=LINEAR(centred=True, gram_scale=0.35))
    policy = linear(fb.algos.dp_dpe(np.array([[-1.0, 0.0], [1.0, 0.0]]), half, schedule=2), n_agents=1)
    return [
        replace(three, name="returning users", mechanism=honest(batch=3).mechanism),
        weaker(median, "noise after the rule", stepping(shows_sums)),
        weaker(median, "shares of noise", scaled(std=3**-0.5)),  # as secure aggregation has it
        weaker(policy, "three fifths of DP-DPE's noise", scaled(std=0.6)),
    ]


LAWS = {  # name of a control -> noise (D = 5: three entries of x x', two of x y) from an honest draw, std and key
    "one draw for all entries": lambda z, std, key: jnp.broadcast_to(z[0], z.shape),
    "noise left out in 1 %": lambda z, std, key: jnp.where(rare(key) < 0.01, 0, z),
    "noise left out in 0.1 %": lambda z, std, key: jnp.where(rare(key) < 0.001, 0, z),  # seen by draws alone
    "noise cast to float16": lambda z, std, key: z.astype(jnp.float16).astype(jnp.float32),
    "noise from float32 normals": lambda z, std, key: std * jax.random.normal(key, z.shape),  # end at 5.4 std: as above
    "noise shared in 10 %": lambda z, std, key: jnp.where(rare(key) < 0.1, z[0], z),
    "bounded noise": lambda z, std, key: std * jax.random.truncated_normal(key, -2, 2, z.shape),
    "uniform noise": lambda z, std, key: std * 3**0.5 * jax.random.uniform(key, z.shape, minval=-1, maxval=1),
    "one-sided noise": lambda z, std, key: jnp.abs(z),
    "small noise dropped": lambda z, std, key: jnp.where(jnp.abs(z) < 0.02 * std, 0, z),
    "noise on a coarse grid": lambda z, std, key: std / 4 * jnp.round(z / (std / 4)),
    "no noise on x x'": lambda z, std, key: z * (jnp.arange(5) > 2),
    "no noise on x y": lambda z, std, key: z * (jnp.arange(5) < 3),
    "one entry without noise": lambda z, std, key: z * (jnp.arange(5) > 0),
}


def rare(key):
    return jax.random.uniform(jax.random.fold_in(key, 1))


@fb.pytree
class Flawed(SiloLocal):
    """Noise of one of the `LAWS`; which one is a number, so that all share a program."""

    law: int

    def noise(self, key, size):
        std, honest = self.std[0], SiloLocal.noise(self, key, size)
        return jnp.stack([law(honest, std, key) for law in LAWS.values()])[self.law]


def broken_laws():
    small = dict(budget=fb.privacy.Budget(8.0, 1e-6))
    flawed = [trusting(lambda trust, i=i: turned(Flawed, trust, law=i)) for i in range(len(LAWS))]
    return all_damaged({name: (flaw, small if "float32" in name else {}) for name, flaw in zip(LAWS, flawed)})
