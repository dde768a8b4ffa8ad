"""Noise on sums of linear statistics that has the wrong size or the wrong law, or is not there."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from _damage import SMALL, changed, damaged, honest, noisy, private, scaled, trusting, turned

import fedbandit_jax as fb
from fedbandit_jax.audits import BUDGET, linear
from fedbandit_jax.privacy.apart import Apart
from fedbandit_jax.privacy.noisy_sums import Aggregated
from fedbandit_jax.privacy.releases.banded import BandedToeplitz
from fedbandit_jax.privacy.trust import SiloLocal, SiloLocalMatrix, VectorSum


def broken_kappa():
    """kappa = 1: the tree's composition over levels forgotten."""
    return scaled("kappa = 1", 0.5)  # kappa = 4 at S = 8


def broken_adjacency():
    """Delta_J^2 = 2, the sensitivity of removing a user, where users are replaced."""
    return scaled("sensitivity of zero_out", (2 / 4.5) ** 0.5)


def broken_sensitivity():
    """Half of the sensitivity."""
    return scaled("half the sensitivity", 0.5, release="sqrt_toeplitz")


def broken_blt():
    """BLT noise scaled as if one user were in one message."""
    return scaled("blt without its sensitivity", 4.5**0.5 / 2.7808, release="blt")


def broken_window():
    """The noise of a window calibrated as if one user were in one message."""
    release = fb.privacy.Window(8)
    return scaled("window without its sensitivity", release(8).sensitivity_sq() ** -0.5, release=release)


@fb.pytree
class Fading(BandedToeplitz):
    """Noise that is forgotten while the data are not: that of a discounted sum, on the sum of all batches."""

    def decode(self, state, k, message):
        recent, prefix = state
        return BandedToeplitz.decode(self, (recent, 0.5 * prefix), k, message)


def broken_discount():
    """Prefix sums with the noise of discounted ones."""

    def change(mechanism):
        return replace(mechanism, release=turned(Fading, mechanism.release))

    return damaged("noise forgotten", change, release=fb.privacy.Discounted(0.5))


def broken_variance():
    """sqrt(sigma) for sigma."""
    return scaled("standard deviation for variance", 0.4)


def broken_visits():
    """Users who come three times, calibrated for once."""
    three, once = honest(batch=3, unit=fb.privacy.Users(3)), honest(batch=3)
    return replace(three, name="returning users", mechanism=once.mechanism)


def lax(name, users):
    """Noise for users who come three times, once in a batch, every other batch; silos allow for more."""
    unit = fb.privacy.Users(3, per_batch=1, apart=2)
    return damaged(name, lambda mechanism: replace(mechanism, users=users), release="blt", batch=3, unit=unit)


def broken_count():
    """A count of visits that is reset after every batch."""
    return lax("visits not counted", fb.privacy.Users(100, per_batch=1, apart=2))


def broken_apart():
    """A neighbour batch counted as apart."""
    return lax("batches not apart", fb.privacy.Users(3, per_batch=1, apart=1))


def broken_batch():
    """The bound per batch forgotten."""
    return lax("visits of a batch not bounded", fb.privacy.Users(3, per_batch=3, apart=2))


def broken_share():
    """Shares of the noise that are enough if no silo is away."""

    def less(mechanism):
        return replace(mechanism, trust=replace(mechanism.trust, share=np.float32(mechanism.trust.share * 0.5**0.5)))

    given = dict(n_agents=2, trust="secagg", release="input_perturbation", dropouts=1, drops=True)
    return damaged("shares for silos that are always there", less, **given)


def broken_total():
    """Totals of users that are not clipped."""
    bias, once = fb.privacy.Linear(centred=True, gram_scale=0.05), fb.privacy.Users(1, total=1.0)
    given = dict(release="blt", batch=8, unit=once, statistic=bias)
    return damaged("totals not clipped", lambda mechanism: replace(mechanism, users=replace(once, total=99.0)), **given)


@fb.pytree
class Forgotten(Aggregated):
    """Draws its noise and does not add it."""

    def step(self, key, k, state, total, x, y):
        _, after = Aggregated.step(self, key, k, state, total, x, y)
        return after.sums.high, after._replace(view=after.sums.high)


@fb.pytree
class Constant(Aggregated):
    """One draw for every release of every run: the key is never used."""

    def step(self, key, k, state, total, x, y):
        return Aggregated.step(self, jax.random.key(7), k, state, total, x, y)


@fb.pytree
class Reused(Aggregated):
    """The key of the first of `every` releases in all of them."""

    every: int = fb.static(default=8)

    def init(self, dim):
        return Aggregated.init(self, dim)._replace(trust=jnp.zeros(2, jnp.uint32))

    def step(self, key, k, state, total, x, y):
        first = jnp.where((k - 1) % self.every == 0, jax.random.key_data(key), state.trust)
        statistics, after = Aggregated.step(self, jax.random.wrap_key_data(first), k, state, total, x, y)
        return statistics, after._replace(trust=first)


@fb.pytree
class NotTheLast(Aggregated):
    """Nothing is added at the last synchronisation."""

    def step(self, key, k, state, total, x, y):
        statistics, after = Aggregated.step(self, key, k, state, total, x, y)
        shown = jnp.where(k == self.release.n_syncs, after.sums.high, statistics)
        return shown, after._replace(view=shown)


@fb.pytree
class Adapted(Aggregated):
    """Less noise for users with small rewards: the local sensitivity."""

    needs_users = True

    def step(self, key, k, state, total, x, y):
        trust = replace(self.trust, std=self.trust.std * jnp.where(y.sum() > 0, 1.0, 0.5))
        return Aggregated.step(turned(Aggregated, self, trust=trust), key, k, state, total, x, y)


def broken_never_added():
    """Noise drawn, reported, and not added."""
    return damaged("noise never added", lambda mechanism: turned(Forgotten, mechanism))


def broken_missing_key():
    """Randomness that falls back to a constant."""
    return damaged("constant key", lambda mechanism: turned(Constant, mechanism))


def broken_shared_by_releases():
    """One draw shared by all releases."""
    return damaged("one draw for all releases", lambda mechanism: turned(Reused, mechanism))


def broken_shared_by_two_releases():
    """One draw shared by every two releases."""
    return damaged("one draw for two releases", lambda mechanism: turned(Reused, mechanism, every=2))


@fb.pytree
class NoiseAfterwards(Apart):
    """The server is shown what every silo sums up, and adds the noise itself."""

    def step(self, key, k, state, total, x, v):
        statistics, after = Apart.step(self, key, k, state, total, x, v)
        return statistics, after._replace(view=self.statistic.pack(after.sums.high))


def of_the_median(name, change):
    """The honest case of a median over silos, run with `change(mechanism)` in place of its mechanism."""
    case = linear(private(release="blt").replace(aggregate="median"), n_agents=3)
    return changed(case, name, lambda bound: replace(bound, mechanism=change(bound.mechanism)))


def broken_afterwards():
    """Noise on a median of exact messages."""
    return of_the_median("noise after the rule", lambda mechanism: turned(NoiseAfterwards, mechanism))


def broken_shares():
    """A third of the noise in each of three silos, as secure aggregation has it, where single messages are seen."""
    std = np.float32(3**-0.5)
    return of_the_median("shares of noise", trusting(lambda trust: replace(trust, std=trust.std * std)))


def broken_last_release():
    """The last release is exact: only users of the last batch are not protected at all."""
    return damaged("last release without noise", lambda mechanism: turned(NotTheLast, mechanism))


def broken_local_sensitivity():
    """Noise whose size depends on the data, while its mean does not."""
    return damaged("noise by local sensitivity", lambda mechanism: turned(Adapted, mechanism), release="blt")


LAWS = [
    "shared by entries",
    "nothing in 1 %",
    "shared in 2 %",
    "bounded",
    "uniform",
    "one-sided",
    "small is zero",
    "coarse",
    "no gram",
    "no bias",
    "no first entry",
    "nothing in 0.1 %",
    "float16",
    "float32",
]


@fb.pytree
class Flawed(SiloLocal):
    """Noise of one of the `LAWS`; which one is a number, so that all share a program."""

    law: int

    def noise(self, key, size):
        std, entry = self.std[0], jnp.arange(size)  # of five entries, the first three are x x', the last two x y
        honest, unit = SiloLocal.noise(self, key, size), jax.random.uniform(key, (size,), minval=-1, maxval=1)
        rare = jax.random.uniform(jax.random.fold_in(key, 1))
        laws = {
            "shared by entries": jnp.broadcast_to(honest[0], size),
            "nothing in 1 %": jnp.where(rare < 0.01, 0, honest),
            "shared in 2 %": jnp.where(rare < 0.02, honest[0], honest),
            "bounded": std * jax.random.truncated_normal(key, -2, 2, (size,)),
            "uniform": std * 3**0.5 * unit,
            "one-sided": jnp.abs(honest),
            "small is zero": jnp.where(jnp.abs(honest) < 0.02 * std, 0, honest),
            "coarse": std / 4 * jnp.round(honest / (std / 4)),
            "no gram": honest * (entry > 2),
            "no bias": honest * (entry < 3),
            "no first entry": honest * (entry > 0),
            "nothing in 0.1 %": jnp.where(rare < 0.001, 0, honest),
            "float16": honest.astype(jnp.float16).astype(jnp.float32),
            "float32": std * jax.random.normal(key, (size,)),
        }
        assert list(laws) == LAWS
        return jnp.stack(list(laws.values()))[self.law]


def flawed(name, law, **options):
    """Noise of another law at every silo."""
    return damaged(name, noisy(Flawed, law=LAWS.index(law)), **options)


@fb.pytree
class MatrixBias(SiloLocalMatrix):
    """Noise on x y alone: a user with -x in place of x cannot tell."""

    def noise(self, key, size):
        return SiloLocalMatrix.noise(self, key, size) * (jnp.arange(size) > 2)


def broken_shared_by_entries():
    """One draw shared by all entries of the statistics."""
    return flawed("one draw for all entries", "shared by entries")


def broken_sometimes():
    """Noise left out in one release of a hundred."""
    return flawed("noise left out in 1 %", "nothing in 1 %")


def broken_seldom():
    """Noise left out so seldom that 50,000 runs do not show it; draws of the noise do."""
    return flawed("noise left out in 0.1 %", "nothing in 0.1 %")


def broken_half_precision():
    """Noise cast to float16: the last bits of a release are those of the data."""
    return flawed("noise cast to float16", "float16")


def broken_normals():
    """Normals of 23 bits end 5.4 standard deviations from 0: no number of runs shows it, draws of the noise do."""
    budget = fb.privacy.Budget(8.0, 1e-6)
    return flawed("noise from float32 normals", "float32", budget=budget)


def broken_elimination_of_directions():
    """DP-DPE with three fifths of its noise, of which a slow audit has half of the runs."""
    half = fb.privacy.Mechanism(
        BUDGET, "input_perturbation", statistic=fb.privacy.Linear(centred=True, gram_scale=0.35)
    )
    algo = fb.algos.dp_dpe(np.array([[-1.0, 0.0], [1.0, 0.0]]), half, schedule=2)
    case = replace(linear(algo, n_agents=2), slow=2)
    change = trusting(lambda trust: replace(trust, std=trust.std * np.float32(0.6)))
    return changed(
        case, "three fifths of DP-DPE's noise", lambda bound: replace(bound, mechanism=change(bound.mechanism))
    )


def broken_sometimes_shared():
    """Entries share their noise in one release of fifty."""
    return flawed("noise shared in 2 %", "shared in 2 %")


def broken_support():
    """Bounded support: what is far out tells for certain."""
    return flawed("bounded noise", "bounded")


def broken_uniform():
    """The right variance and the wrong law."""
    return flawed("uniform noise", "uniform")


def broken_sign():
    """No noise is ever negative."""
    return flawed("one-sided noise", "one-sided")


def broken_sparse():
    """An atom in the middle."""
    return flawed("small noise dropped", "small is zero")


def broken_grid():
    """Digits behind the grid show through."""
    return flawed("noise on a coarse grid", "coarse")


def broken_bias():
    """x x' released as it is."""
    return flawed("no noise on x x'", "no gram")


def broken_gram():
    """x y released as it is."""
    return flawed("no noise on x y", "no bias")


def broken_entry():
    """One entry of five has no noise."""
    return flawed("one entry without noise", "no first entry")


def broken_matrix_bias():
    """x x' released as it is, where the farthest neighbours have the same x x'."""
    options = dict(trust="silo_local_matrix", release="prefix_tree")
    return damaged("matrix without noise on x x'", noisy(MatrixBias), **options)


def broken_half_the_silos():
    """Secure aggregation in which most silos add no share of the noise."""
    change = trusting(lambda trust: replace(trust, share=trust.share / np.float32(2)))
    return damaged("three of four silos add no noise", change, n_agents=4, trust="secagg", release="blt")


def broken_vector_sum():
    """A sixteenth of the noise bits."""
    change = trusting(lambda trust: replace(trust, b=np.ceil(trust.b / 16)))
    return damaged("a sixteenth of the bits", change, n_syncs=2, **SMALL)


@fb.pytree
class NarrowCounter(VectorSum):
    """Users of a node counted in eight bits, as `jnp.bitwise_count` counts: 300 of them become 44."""

    def _node(self, k):
        level = jnp.bitwise_count((k & -k) - 1)
        return level, self.n_batch * (jnp.uint8(1) << level)


def broken_counter():
    """Noise for the wrong number of users: an overflow that this library once had."""
    options = dict(n_agents=30, batch=10, n_syncs=1, trust="shuffle_vector_sum")
    return damaged("users counted in 8 bits", noisy(NarrowCounter), **options)
