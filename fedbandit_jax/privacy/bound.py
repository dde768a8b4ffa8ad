"""Bound mechanisms, which release the sums of all batches and issue the certificate of these releases.

`noisy_sums` draws the noise of a `PrivateMechanism`, and `proof` proves it.

Letters: x (d,) and y are one user's features and reward. The user's weight is w and the response v (1 and y if
`Linear`). Releases are [W | U], (d, d + 1), with W = sum w x x' and U = sum x v.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import override

from fedbandit_jax.certificate import BEYOND, Certificate, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.admission import Admitted, BoundStatistic
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.packing import added, packed_size, rows
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.statistic import statistic_tags
from fedbandit_jax.privacy.sums import Steps, Sums, step_of
from fedbandit_jax.privacy.trust.model import Trust
from fedbandit_jax.privacy.trust.requirement import Requirement
from fedbandit_jax.privacy.users import TOGETHER, Users

VISIT_TIMES = "the times and the number of each user's visits"  # if users are identified
NOT_COVERED = (
    "the number of users, which is public",
    "a user's own recommendation, which only that user sees",
    *BEYOND,
    "floating-point attacks",
)


class Timing(NamedTuple):
    """A bound schedule's account of itself: how times of synchronisation are chosen, and the cost in privacy."""

    sentence: str  # for the certificate: how times are chosen
    pure: Any = 0.0  # epsilon that the schedule spends on one visit of a user, () for all silos or (M,)
    fixed: bool = True  # does every batch have the size that the mechanism is bound for?
    longest: int | None = None  # the most rounds of a batch, if sizes differ and are fixed in advance
    total: int | None = None  # the most rounds of all batches, if they are fixed in advance
    n_agents: int | None = None  # number of silos that a private schedule tests, with independent noise

    @property
    def tags(self) -> Tags:
        """Returns the tags of the schedule for `privacy.compatibility`."""
        said = {
            "unequal batches": not self.fixed,
            "adaptive schedule": not (self.fixed or self.longest is not None),
            "schedule that spends budget": np.any(self.pure),
        }
        return tagged("schedule", self.sentence, said)


class MechanismState(NamedTuple):
    """Exact sums, release and trust model of a mechanism between two synchronisations."""

    sums: Sums | Steps | None  # exact sums of all batches, of this batch in `Rounded`; None if they are not kept
    release: Any  # state of the release (of its encoder and decoder, if messages are encoded)
    trust: Any  # state of the trust model; in `Messages` (S, B, D, M) packed statistics, if it needs users
    view: Any  # the untrusted parties' view of the last synchronisation
    seen: Any = ()  # the summary of the last release, see `Statistic.read`


Stepped = tuple[Array, MechanismState]


@struct.pytree
class BoundMechanism:
    """Base class of bound mechanisms, which release [W | U] after every batch and certify the releases."""

    n_agents: int = struct.static()

    def admit(self, x: Array, y: Array, seen: Any = ()) -> Admitted:
        """Returns features (d, M) and rewards (M,) as they enter sums, see `BoundStatistic.admit`; here unchanged."""
        nobody = jnp.zeros(y.shape, bool)
        return Admitted(x, y, nobody, nobody)

    def read(self, statistics: Array, std: Array) -> Any:
        """Returns the summary, for later contributions, of a release [W | U], (d, d + 1), with noise of this `std` on
        W.
        """
        return ()

    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        """Returns the proof for a schedule that uses batches of `batch` rounds (None: of any size)."""
        raise NotImplementedError(f"{type(self).__name__}.guarantee")

    def init(self, dim: int) -> MechanismState:
        """Returns the state before the first synchronisation, for d = `dim` features."""
        nothing = jnp.zeros((dim, dim + 1))
        return MechanismState(self.nothing(dim), (), (), nothing, self.read(nothing, jnp.float32(0)))

    # whether `total`, `absorb` and `step` get the sums of every silo, (d, d + 1, M), and not one sum over silos
    per_silo: ClassVar[bool] = False
    enforced: ClassVar[bool] = False  # whether a loop leaves out one user's contributions beyond `users`
    together: ClassVar[bool] = False  # whether it does so by one count for all silos
    clips: ClassVar[bool] = False  # whether a loop counts the contributions that are clipped
    needs_users: ClassVar[bool] = False  # whether `step` needs single users; otherwise their sum is enough
    resends: ClassVar[bool] = True  # whether a silo that was away adds its unsent sums to its next message
    longest: ClassVar[int | None] = None  # the most rounds added up before `absorb` or `step`; None if any number is

    def objection(self, spec: Any) -> str:
        """Returns why the mechanism is bound for another environment; "" if it is for `spec`."""
        if self.n_agents != spec.n_agents:
            return f"the mechanism is bound for {self.n_agents} silos, and there are {spec.n_agents}"
        return ""

    @property
    def source(self) -> Any:
        """What draws the noise of all releases before a loop, see `Algorithm.source`; None if the loop draws it."""
        return None

    @property
    def needed(self) -> int:
        """Returns the least number of silos that must send for a release."""
        return 0

    dtype: ClassVar[Any] = jnp.float32  # of `summands`

    def summands(self, x: Array, v: Array) -> Array:
        """Returns the summands (*n, d, d + 1, M) of users admitted as (*n, d, M) and v, as loops add them up."""
        return added(x, v)

    def total(self, x: Array, v: Array) -> Array:
        """Returns the sum of the summands of users (B, d, M) and v, (d, d + 1)."""
        if self.per_silo:
            return self.summands(x, v).sum(0)
        return jnp.einsum("bim,bjm->ij", x, rows(x, v), precision="highest")

    def real(self, total: Array) -> Array:
        """Returns a sum of summands in float32."""
        return total

    def nothing(self, dim: int) -> Sums | Steps:
        """Returns the sum of no batch; its arrays have a leading axis M if the state is `per_silo`."""
        zeros = jnp.zeros((self.n_agents,) * self.per_silo + (dim, dim + 1))
        return Sums(zeros, zeros)

    def absorb(self, state: MechanismState, part: Array) -> MechanismState:
        """Adds part of a batch's sum, (d, d + 1), before the batch ends. `step` then takes the rest."""
        assert state.sums is not None  # schedules that are no clock run with exact sums only
        return state._replace(sums=state.sums.add(jnp.moveaxis(part, -1, 0) if self.per_silo else part))

    def step(
        self, key: Array, k: Array, state: MechanismState, total: Any, x: Array, v: Array, sends: Array | None = None
    ) -> Stepped:
        """Returns the release [W | U] after batch k = 1, 2, ..., and the next state.

        Args:
            key: of the noise.
            k: number of the batch.
            state: after batch k - 1.
            total: (d, d + 1) sum of the `summands` of the users of the batch, without absorbed ones; or of [x x' | x y]
                in float32, or in steps as `Wide`.
            x, v: the users as `admit` returns them, (B, d, M) and (B, M) or (B, 2, M); B may be 0 unless `needs_users`.
            sends: (M,) bool, which silos send; None: all.
        """
        raise NotImplementedError(f"{type(self).__name__}.step")

    def uplink(self, k: Array, dim: int) -> tuple[Array | int, Array | int]:
        """Returns the count of numbers that all silos send at synchronisation k, and the bits of each."""
        return self.n_agents * packed_size(dim), 32


@struct.sealed
@struct.pytree
class Exact(BoundMechanism):
    """A mechanism without privacy, which releases the exact sums."""

    @override
    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        return no_privacy("not a private algorithm: no noise is added")

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        sums = state.sums.add(total)
        return sums.high, state._replace(sums=sums, view=sums.high)


@struct.sealed
@struct.pytree
class NoRelease(BoundMechanism):
    """A mechanism that never releases anything, because no synchronisation fits into the horizon."""

    def stds(self) -> np.ndarray:
        """Returns an empty array."""
        return np.zeros(0)

    @override
    def step(self, key: Array, k: Array, state: Any, total: Any, x: Array, v: Array, sends: Any = None) -> Stepped:
        return jnp.full_like(total, jnp.nan), state

    @override
    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        if np.any(timing.pure):
            return no_privacy("nothing is released, so no silo may ask for a release, but this schedule asks")
        return Certificate(
            claim="certified",
            reason="nothing is released, because the horizon ends before the first synchronisation",
            not_covered=NOT_COVERED,
        )


@struct.pytree
class PrivateMechanism(BoundMechanism):
    """A release through a trust model, bound to a statistic and to S synchronisations.

    Everything that decides the noise, or the sensitivity of the releases to one user, is a field. `proof` computes the
    certificate from these fields alone.
    """

    shows_silos: ClassVar[bool] = False  # whether the view has the messages of every silo

    trust: Trust
    release: Release
    statistic: BoundStatistic = struct.static()
    adjacency: str = struct.static()
    epsilon: Any  # (1,) asked for by all silos, or (M,) by each
    delta: struct.Number
    users: Users = struct.static()  # how often one user may contribute
    enforced: bool = struct.static()  # does the loop leave out the rest?  # pyright: ignore[reportIncompatibleVariableOverride]
    held: struct.Number  # the most rounds in one message of a silo
    resends: bool = struct.static(default=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    batch: int | None = struct.static()  # B, of the largest batch; None if the proof covers all
    longest: int = struct.static()  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    @override
    def together(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.enforced and self.users.silos == TOGETHER and self.statistic.silos > 1

    @property
    def waits(self) -> bool:
        """Whether a silo may send sums of several batches together, because it or too many others were away."""
        return self.statistic.drops and (self.resends or self.trust.away == "few")

    @property
    def tags(self) -> Tags:
        """Returns the tags of the bound parts for `privacy.compatibility`."""
        one, trust, release, n = self.statistic, type(self.trust), type(self.release), np.size(self.epsilon)
        mixed = {"batch in several messages": one.drops and self.release.touched() > 1}
        return (
            tagged("trust", trust.__name__, trust.tags())
            | tagged("release", release.__name__, releases.tags(release) | mixed)
            | statistic_tags(one.rule)
            | one.tags
            | tagged("budget", n, {"several budgets": n > 1})
        )

    @property
    def row_step(self) -> float:
        """Returns the step of the exact sums of users' rows. No rounding of a sum then depends on a user."""
        return step_of(self.n_agents * self.longest)

    def stds(self) -> np.ndarray:
        """Returns standard deviations (S,) of the noise on the diagonal of W in every release."""
        return self.trust.sum_std() * np.sqrt(self.release.prefix_variance()) / self.statistic.bounds.gram_scale

    def batch_stds(self) -> np.ndarray:
        """Returns standard deviations (S,) of the noise on x y in every batch alone, the difference of two releases."""
        return self.trust.sum_std() * np.sqrt(self.release.batch_variance())

    @property
    def sensitivity(self) -> float:
        """The joint l2 sensitivity of all messages to one user, in a norm with equal noise on all entries."""
        return self.requirement(0).sensitivity

    def budget(self, i: int) -> Budget:
        """Returns the budget of silo i, or of all silos together (i = 0)."""
        return Budget(float(self.epsilon[i]), float(self.delta), self.adjacency)

    def spent(self, pure: Any) -> float:
        """Returns epsilon of a schedule's tests for all contributions of one user, from `pure` for one visit."""
        return float(self.users.together * np.max(pure))

    def requirement(self, i: int, pure: Any = 0.0) -> Requirement:
        """Returns the request of silo i, or of all together, to the trust model; `pure` as in `Timing`."""
        each, n = np.asarray(pure, float).reshape(-1), len(self.epsilon)
        return Requirement(
            budget=self.budget(i),
            release=self.release,
            users=self.users.in_any_batches if self.waits else self.users,
            by_silo=self.trust.per_silo,
            joint_matrix=self.trust.joint_matrix,
            n_agents=self.n_agents,
            dropouts=self.trust.dropouts,
            held=int(self.held),
            batch=self.batch or 1,
            dim=self.statistic.dim,
            moves_sq=self.statistic.sensitivity_sq(self.adjacency),
            rounding=self.statistic.rounding(self.n_agents * self.longest),
            pure=self.spent(each[i] if len(each) == n else each),
        )
