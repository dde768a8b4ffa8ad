"""Thompson sampling of arms: on sums with noise, or private by itself, where the noise of samples is all there is.

The former is `PhasedThompson`, whose samples are post-processing. The latter is `ThompsonArms`, which follows Ou,
Avella Medina & Cummings (2024), "Thompson sampling itself is differentially private". We read the abstract, and derived
phases, calibration and proof ourselves. They follow.

*Sampler.* Arm a has had j phases with N users in all. Their rewards are rounded to integers, g steps per unit of
reward, with the exact sum S. After a phase of any arm, the server draws S + Z for every arm. Here Z is independent
N(0, v_j) noise, rounded to an integer. The next phase is of the arm with the largest (S + Z) / (g (N + 1)). If v_j = c
g^2 (N + 1), this index is a draw from the posterior of N(mean, c) rewards under the prior N(0, c).

*One draw.* Neighbours differ in one reward of one user, of arm a. Given equal earlier draws, all others see the same
arms and answer alike. The user moves S of arm a by at most g, after their own phase, and no other sum. So a draw at
phase j of arm a is a Gaussian mechanism with mu_j^2 = g^2 / v_j. S is an integer, so rounding Z is post-processing.

*All draws.* Earlier draws decide which mu_j comes next. The logarithm of the likelihood ratio of all draws is a
Brownian motion with drift -1/2 or 1/2, at the time sum of mu_j^2. If this time is at most mu^2 on every path, another
Gaussian mechanism may use up the rest. Then the ratio is that of one Gaussian mechanism with this mu. Leaving
out the added mechanism is post-processing (Smith & Thakurta 2022).

*Paths.* The first draw follows the first phase of the last arm, and one draw follows each later phase. At most one of
them finds arm a just after its phase j. Every other draw follows a phase of another arm. If arm a ends with i phases,
the horizon T leaves users for at most R_i later phases of others. So mu^2 is at most the largest of mu_1^2 + ... +
mu_i^2 + R_i max mu_j^2 over i, with the maximum over j <= i. Nothing is drawn after a phase that T cuts short.

*Batches.* All users of a phase see the arm of one draw. If each had their own, every user would cost a draw. With
growth = 1, later phases have one user each, as in the literature, and mu^2 grows like T.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import brentq
from typing_extensions import override

from fedbandit_jax.algos.arms.adac_ucb import AdaCState, BoundAdaC, OneArm
from fedbandit_jax.algos.arms.elimination import DELTA, check_arms
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import random, struct, validate, wide
from fedbandit_jax.core.padding import padded
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.core.wide import Wide
from fedbandit_jax.interfaces import ArmAlgorithm, Pulls, Recipe, Report, Spec
from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting import gaussian_epsilon, gaussian_mu
from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE, MOST_MU
from fedbandit_jax.privacy.integers.noise import rounded_up
from fedbandit_jax.privacy.integers.proof import ROOM
from fedbandit_jax.privacy.integers.ring import FINE, NOT_COVERED, sum_encoded
from fedbandit_jax.privacy.users import ONCE

WIDEST = 2.0**20  # largest standard deviation in steps: a float32 draw then reaches every integer below 2^23
FIRST = 100  # least users of the first phase of an arm in `PhasedThompson`, by default
INFLATE = ("constant", "factor")  # how the variance is raised


class ThompsonState(NamedTuple):
    """Server of `BoundThompson` between two phases. The exact sums never leave it."""

    asked: Array  # (K,) int32, phases of every arm
    sums: Wide  # (K,) exact sums of rewards, in steps
    drawn: Array  # (K,) the last draw, noisy sums in units of reward; 0 before the first draw
    pulled: Array  # (K,) bool, the arm of the last phase


@struct.sealed
@struct.pytree
class BoundThompson(ArmAlgorithm):
    """A bound `ThompsonArms`. Tables are `padded` and have a row for every phase j = 1, ..., J of an arm."""

    sizes: Any  # (J,) int32, users of an arm's j-th phase
    std: Any  # (J,) float32, standard deviation of the noise after it, in steps
    steps: struct.Number  # g, steps per unit of reward
    horizon: struct.Number  # T
    n_batches: struct.Number  # pyright: ignore[reportIncompatibleVariableOverride]
    epsilon: struct.Number  # the epsilon asked for
    delta: struct.Number  # the delta asked for
    spec: Spec = struct.static()  # of the environment that it is bound to

    @override
    def init(self, key: Array, spec: Spec) -> ThompsonState:
        zeros = jnp.zeros(spec.n_arms, jnp.int32)
        return ThompsonState(zeros, wide.from_int32(zeros), zeros.astype(jnp.float32), zeros > 0)

    @override
    def pulls(self, state: ThompsonState, k: Array) -> Pulls:
        users = jnp.pad(jnp.cumsum(jnp.asarray(self.sizes)), (1, 0))[state.asked]
        index = jnp.where(state.asked > 0, state.drawn / (users + 1), jnp.inf)
        arm, last = index.argmax(), len(self.sizes)
        size = jnp.asarray(self.sizes)[jnp.minimum(state.asked[arm], last - 1)]
        fits = (state.asked[arm] < last) & (size <= self.horizon - users.sum())
        return Pulls(jnp.arange(len(index)) == arm, size, fits)

    @override
    def collect(self, rounding: Array, own: Array, k: Array, rewards: Any, inside: Any) -> Wide:
        return sum_encoded(rounding, k, jnp.asarray(self.steps), rewards, inside)

    @override
    def conclude(
        self, key: Array, k: Array, state: ThompsonState, sums: Wide, entered: Array | None = None
    ) -> tuple[ThompsonState, Report]:
        pulls = self.pulls(state, k)
        asked, total = state.asked + pulls.active, wide.add(state.sums, sums)
        std = jnp.asarray(self.std)[jnp.maximum(asked - 1, 0)]
        noisy = wide.add(total, wide.from_float(std * tails.normal(key, std.shape)))
        drawn = jnp.where((asked > 0).all(), wide.to_float(noisy) / self.steps, 0)
        bits = jnp.ceil(jnp.log2(jnp.asarray(self.steps) + 1))
        report = Report(rounds=1, floats=pulls.users.astype(jnp.float32), float_bits=bits)
        return ThompsonState(asked, total, drawn, pulls.active), report

    @override
    def view(self, state: ThompsonState) -> tuple[Array, Array]:
        return state.drawn, state.pulled

    @override
    def guarantee(self) -> Certificate:
        sizes, std = np.asarray(self.sizes, np.int64), np.asarray(self.std, float)
        fine = sizes.shape == std.shape and sizes.min() >= 1 and std.min() > 0 and std.max() <= WIDEST
        if not (fine and 1 <= self.steps <= FINE):
            return no_privacy("nothing is proved of such phases, steps or noise")
        steps, epsilon, delta = math.ceil(float(self.steps)), float(self.epsilon), float(self.delta)
        others = paths(sizes, self.spec.n_arms, int(self.horizon))
        squared, n_draws = spent(others, (steps / std) ** 2), int(spent(others, np.ones(len(others))))
        if not n_draws:
            reason = "nothing is drawn: the horizon is reached before the first phases of all arms end"
            return Certificate(claim="certified", reason=reason, not_covered=NOT_COVERED)
        if not squared < MOST_MU**2:
            return no_privacy("the sampler has almost no noise")
        mu, missing = math.sqrt(squared), n_draws * tails.CUT
        charged = min(epsilon, gaussian_epsilon(mu, delta) * (1 + 1e-6))
        exact = tails.epsilon(lambda left: gaussian_epsilon(mu, left), delta, charged, missing)
        smallest, reason = tails.smallest_delta(exact, missing), ""
        if not smallest < delta:
            reason = tails.sentence(smallest, exact, delta)
        elif not exact <= epsilon * (1 + ROOM):
            reason = f"the samples give epsilon = {exact:.4g} at delta = {delta:g}, not {epsilon:g}"
        noise, bits, again = float(std[0]) / steps, math.ceil(math.log2(steps + 1)), self.spec.n_users > 0
        return Certificate(
            claim="none" if reason else "certified",
            reason=reason or "a reward enters only sums that are sampled with noise, and all samples are accounted for",
            trust="central: users and the server are trusted; the server keeps exact sums, and acts on noisy samples",
            trusted="server", neighbours="replace", not_covered=NOT_COVERED,
            adjacency="replace (one user's reward replaced by any other in [0, 1])",
            unit=ONCE.unit(enforced=False, returning=again),
            whole_user=not again, epsilon=epsilon, delta=delta, epsilon_exact=exact, smallest_delta=smallest,
            accountant="Gaussian differential privacy, by the largest sum of mu^2 on any path",
            noise_std=noise, noise_whose="of the first sample of an arm's sum of rewards",
            server_noise_std=float(std.max()) / steps, releases=n_draws, releases_per_user=squared * noise**2,
            sensitivity=mu * noise, bits_per_user=(bits, bits),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThompsonArms(Recipe):
    """Plays the arm of the largest sample from noisy posteriors, in growing phases of one arm. Ours.

    After each phase the server draws a sample for every arm: its mean with Gaussian noise. For N users the variance is
    c / (N + 1), as in Thompson sampling, or as much more as epsilon needs. No other noise is added.

    The trust model is central: the server sees raw rewards in [0, 1]. The privacy unit is one user with one visit.
    Adjacency is replacement of that user's reward by any other in [0, 1]. It moves the arm's sum by at most 1 (the
    sensitivity) in all later draws. The guarantee is for all draws, and so for all arms played.

    Args:
        epsilon: privacy parameter in [1e-9, 1e6]. If the sampler gives less already, it stays as it is.
        delta: privacy parameter in (0, 1).
        first: b, users of an arm's first phase, before the first draw.
        growth: factor in [1, 16] between the users of an arm before and after a phase.
        variance: c in [1e-6, 1e6]. The literature takes 1; rewards in [0, 1] have a variance of at most 1/4.
        inflate: how the variance is raised. "factor" takes a larger c, as in the literature. "constant" (ours) adds one
            number to the variance of every noisy sum, which matters less for means of many users.
        name: label in results.

    Raises:
        ValueError: when bound, also if T has fewer than K b users, or epsilon needs noise of more than 2^20 rewards.

    Reference: after Ou, Avella Medina & Cummings (2024), whose pre-pulls b and factor c these are.
    """

    epsilon: float = dataclasses.field(kw_only=False)
    delta: float = DELTA
    first: int = 100
    growth: float = 2.0
    variance: float = 0.25
    inflate: str = "constant"
    name: str = "Thompson, arms"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.within("epsilon", validate.positive("epsilon", self.epsilon), *EPSILON_RANGE)
        validate.probability("delta", self.delta)
        validate.integer("first", self.first, at_least=1)
        check_posterior(self)
        validate.one_of("inflate", self.inflate, INFLATE)
        validate.text("name", self.name)

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundThompson:
        check_arms(self.name, spec.n_arms, horizon)
        sizes = phases(self.first, self.growth, horizon, spec.n_arms)
        others = paths(sizes, spec.n_arms, horizon)
        tails.check_delta(self.delta, missing := spent(others, np.ones(len(others))) * tails.CUT)
        left = self.delta - tails.smallest_delta(self.epsilon, missing)
        most = gaussian_mu(self.epsilon, left if left > 0 else self.delta) ** 2
        posterior = self.variance * (np.cumsum(sizes) + 1.0)

        def raised(by: float) -> np.ndarray:
            return posterior * (1 + by) if self.inflate == "factor" else posterior + by

        by, most_by = 0.0, spent(others, 1 + 1 / posterior) / most
        if spent(others, 1 / posterior) > most:
            by = float(brentq(lambda by: spent(others, 1 / raised(by)) - most, 0, most_by)) * (1 + 1e-9)  # pyright: ignore
        std = np.sqrt(raised(by))
        if std.max() > WIDEST:
            raise BadValue("epsilon", "must be larger for noise of at most 2^20 rewards", self.epsilon)
        steps = min(max(2.0 ** math.floor(math.log2(WIDEST / std.max() / (1 + 1e-6))), 1.0), FINE)
        return BoundThompson(
            sizes=padded(sizes.astype(np.int32)),
            std=padded(rounded_up(std * steps)),
            steps=np.float32(steps),
            horizon=horizon,
            n_batches=spec.n_arms + most_phases(sizes[1:], spec.n_arms, horizon - self.first * spec.n_arms) + 1,
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            spec=spec,
        )


@struct.sealed
@struct.pytree
class BoundPhasedThompson(BoundAdaC):
    """A bound `PhasedThompson`. A `radius` is the standard deviation of a sample, and lots of arms are normal."""

    forgets = False

    @override
    def index(self, state: AdaCState) -> Array:
        last, users = jnp.maximum(state.asked - 1, 0), jnp.cumsum(jnp.asarray(self.users, jnp.float32))
        sample = state.sums / (users[last] + 1) + jnp.asarray(self.radius)[last] * state.lot
        return jnp.where(state.asked > 0, sample, jnp.inf)

    @override
    def conclude(
        self, key: Array, k: Array, state: AdaCState, sums: Wide, entered: Array | None = None
    ) -> tuple[AdaCState, Report]:
        after, report = super().conclude(key, k, state, sums, entered)
        return after._replace(lot=jax.random.normal(random.stream(key, "samples"), state.lot.shape)), report


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasedThompson(OneArm):
    """Plays the arm of the largest sample from posteriors of noisy sums, in growing phases, each released once. Ours.

    After each phase an arm with N users has the sample S / (N + 1) + Z. Here S is the sum of its noisy sums, and Z is
    Gaussian with variance (c (N + 1) + V) / (N + 1)^2. V is the variance of the noise in S. Privacy is as in `OneArm`.

    Args:
        sums, name: as in `OneArm`; radii and growth of the variant are not used.
        first: b, users of an arm's first phase. None: 60 / epsilon, or its square for local noise, at least 100 and at
            most T / (2 K). With fewer, noise may hide the best arm for long, as it is sampled only once per phase.
        growth: factor in [1, 16] between the users of an arm before and after a phase, which has two users or more.
        variance: c in [1e-6, 1e6]. Rewards in [0, 1] have a variance of at most 1/4.

    Raises:
        ValueError: when bound, also if T has fewer than K b users.
    """

    first: int | None = None
    growth: float = 1.5
    variance: float = 0.25
    name: str = "Phased Thompson"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        if self.first is not None:
            validate.integer("first", self.first, at_least=1)
        check_posterior(self)
        super().__post_init__()

    @override
    def bind(self, spec: Spec, horizon: int) -> BoundPhasedThompson:
        first = self.first
        if first is None:
            needed = (60 / getattr(self.sums, "epsilon", math.inf)) ** (1 + getattr(self.sums.law, "per_user", False))
            first = math.ceil(min(max(needed, FIRST), max(horizon / (2 * spec.n_arms), 1)))
        sizes = np.maximum(phases(first, self.growth, horizon, spec.n_arms), 2)  # as a shuffler needs
        _, fields = self.released(spec, horizon, sizes)
        users, noise = np.cumsum(sizes) + 1.0, np.cumsum(fields["protocol"].stds()[: len(sizes)] ** 2)
        radius = np.sqrt(self.variance * users + noise) / users
        return BoundPhasedThompson(radius=padded(radius.astype(np.float32)), **fields)


def check_posterior(recipe: Any) -> None:
    """Checks the arguments that recipes of Thompson sampling share."""
    validate.within("growth", recipe.growth, 1, 16)
    validate.within("variance", validate.positive("variance", recipe.variance), 1e-6, 1e6)


def phases(first: int, growth: float, horizon: int, n_arms: int = 1) -> np.ndarray:
    """Returns the users of an arm's phases, as int64: totals grow by the factor `growth`, at least by 1, past T.

    >>> phases(4, 1.5, 30).tolist()
    [4, 2, 3, 5, 7, 11]
    """
    if first * n_arms > horizon:
        raise BadValue("first", f"must be at most T / K = {horizon // n_arms}", first)
    totals = [0, first]
    while totals[-1] < horizon:
        totals.append(max(math.ceil(growth * totals[-1]), totals[-1] + 1))
    return np.minimum(np.diff(totals), horizon)


def most_phases(sizes: np.ndarray, n_arms: int, users: Any) -> Any:
    """Returns the largest number of phases with `users` users in all. Each of `n_arms` arms has phases of `sizes`."""
    sizes = np.sort(sizes)
    needed = n_arms * np.cumsum(np.append(0, sizes))
    whole = np.searchsorted(needed, users, "right") - 1
    return n_arms * whole + (users - needed[whole]) // np.append(sizes, 2**62)[whole]


def paths(sizes: np.ndarray, n_arms: int, horizon: int) -> np.ndarray:
    """Returns the most draws (I,) after phases of other arms, if an arm has 1, ..., I phases (see the module)."""
    left = horizon - n_arms * int(sizes[0])
    own = np.cumsum(sizes) - sizes[0]
    return most_phases(sizes[1:], n_arms - 1, left - own[own <= left])


def spent(others: np.ndarray, squares: np.ndarray) -> float:
    """Returns the largest sum of mu_j^2 = `squares` (J,) over a run, from the result of `paths`."""
    own = squares[: len(others)]
    return float(np.max(np.cumsum(own) + others * np.maximum.accumulate(own), initial=0))
