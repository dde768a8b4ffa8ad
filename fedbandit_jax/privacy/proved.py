"""Mechanisms with noise as a proof sees them: all that decides noise and sensitivity, and the certificate.

All of this is computed on the host, from the numbers that `noisy_sums` draws with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.privacy import compatibility, releases, tails
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.bound import (
    ABSENCES,
    ARRIVAL_TIMES,
    MOST_USERS,
    NOT_COVERED,
    VISIT_TIMES,
    BoundMechanism,
    Timing,
)
from fedbandit_jax.privacy.budget import ADJACENCY, Budget
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.releases import Release
from fedbandit_jax.privacy.statistic import is_plain, statistic_tags
from fedbandit_jax.privacy.sums import step_of, too_coarse
from fedbandit_jax.privacy.trust.gaussian import BoundGaussian
from fedbandit_jax.privacy.trust.model import Trust
from fedbandit_jax.privacy.trust.requirement import Requirement
from fedbandit_jax.privacy.users import ONCE, TOGETHER, Users

# for "replace" only: changing a reward may move sums more than leaving it out
FIXED_CONTEXTS = "one user's rewards changed; contexts are fixed for each silo and public"


@struct.pytree
class ProvedMechanism(BoundMechanism):
    """A release through a trust model, bound to a statistic and to S synchronisations.

    Everything that decides the noise, or the sensitivity of the releases to one user, is a field. The certificate is
    computed from these fields alone.
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

    def budget(self, i: int) -> Budget:
        """Returns the budget of silo i, or of all silos together (i = 0)."""
        return Budget(float(self.epsilon[i]), float(self.delta), self.adjacency)

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
    def has_own_parts(self) -> bool:
        """Whether the release or the trust model is user-defined: matrices, or numbers and words."""
        return bool(getattr(self.release, "of_user", "")) or isinstance(self.trust, BoundGaussian)

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

    def coarse(self, batch: int | None) -> str:
        """Returns why integers cannot hold the sum of a batch, or are too coarse for this noise; "" if neither.

        A loop of fixed batches adds up B rounds = `batch`. One without (None) hands rows to `absorb` after `longest`.
        Sums are exact, see `Steps`. If noise is on a grid, or depends on single users, the sum of the longest batch is
        rounded to float32. Each message that it enters is rounded about four times.
        """
        if (batch or 0) > self.longest:
            return f"it adds up at most {self.longest} rounds at a time, and runs with batches of {batch}"
        if self.n_agents * self.longest > MOST_USERS:
            return f"at most {MOST_USERS:,} users can be added up at a time, got {self.n_agents * self.longest:,}"
        if not 16 * self.stds().max() < 2.0**62 * self.row_step:
            return "64-bit integers do not hold so much noise"
        if not (self.trust.on_grid or self.needs_users):
            return ""
        need, roundings = self.requirement(0), 4 * self.release.touched()
        move = need.sensitivity / math.sqrt(need.kappa)
        return too_coarse(self.n_agents * need.largest, self.trust.sum_std(), move, roundings)

    @property
    def sensitivity(self) -> float:
        """The joint l2 sensitivity of all messages to one user, in a norm with equal noise on all entries."""
        return self.requirement(0).sensitivity

    @override
    def guarantee(self, timing: Timing, batch: int | None) -> Certificate:
        if wrong := self._objection(timing, batch):
            return no_privacy(f"nothing is proved of this mechanism: {wrong}")
        needs, several = [self.requirement(i, timing.pure) for i in range(len(self.epsilon))], len(self.epsilon) > 1
        proofs = [(self.trust.silo(i) if several else self.trust).proof(need) for i, need in enumerate(needs)]
        pairs = list(zip([need.budget for need in needs], proofs))
        budget, proof = max(pairs, key=lambda pair: pair[1].epsilon / pair[0].epsilon)
        asked, worst = max(pairs, key=lambda pair: pair[1].epsilon)
        bounded, largest, coarse = self.statistic.bounded, float(np.max(self.epsilon)), self.coarse(batch)
        smallest = tails.smallest_delta(largest, self.trust.missing(needs[0]))
        gives = f"the noise gives epsilon = {proof.epsilon:.4g} at delta = {budget.delta:g}"
        reason = coarse
        if not bounded:
            within = f"within the range of {self.statistic.rule!r}"
            reason = f"rewards enter unclipped, so no bound on the sensitivity holds; {within} {gives}"
        elif not smallest < budget.delta:
            reason = tails.sentence(smallest, largest, budget.delta)
        elif not proof.epsilon <= budget.epsilon:
            reason = f"{gives}, not {budget.epsilon:g}"
        fixed = self.statistic.fixed_contexts
        neighbours = FIXED_CONTEXTS if fixed and self.adjacency == "replace" else ADJACENCY[self.adjacency]
        return Certificate(
            claim="none" if reason else "certified",
            reason=reason or "; ".join(self._why(timing)),
            trust=self.trust.sentence,
            trusted=type(self.trust).trusted,
            adjacency=f"{self.adjacency} ({neighbours})",
            neighbours=self.adjacency,
            unit=self._unit(),
            whole_user=self.enforced or not self.statistic.n_users,
            epsilon=asked.epsilon,
            delta=asked.delta,
            epsilon_exact=worst.epsilon if bounded and not coarse else math.inf,
            smallest_delta=smallest,
            accountant=worst.accountant,
            noise_std=worst.sigma,
            noise_whose=f"per entry {self.trust.whose}" + self._there() + self._on_gram(),
            server_noise_std=float(self.stds().max()),
            release=getattr(self.release, "of", type(self.release).__name__),
            releases=int(self.release.n_syncs),
            releases_per_user=needs[0].kappa,
            sensitivity=(worst.moves or needs[0].sensitivity) if bounded and not self.trust.needs_users else None,
            per_silo=tuple((one.epsilon, one.delta, each.epsilon) for one, each in pairs) if several else (),
            schedule=timing.sentence + (f" (epsilon = {self._pure(timing):g})" if self._pure(timing) else ""),
            not_covered=(
                *worst.assumes,
                *[VISIT_TIMES] * self.enforced,
                *[ARRIVAL_TIMES] * self.statistic.late,
                *[ABSENCES] * self.statistic.drops,
                *NOT_COVERED,
                *["contexts, which are fixed and public"] * fixed,
            ),
        )

    def _there(self) -> str:
        f = self.trust.dropouts if self.trust.away == "few" else 0
        return f", with {self.n_agents - f} of {self.n_agents} silos present" if f else ""

    def _on_gram(self) -> str:
        scale, off = 1 / self.statistic.bounds.gram_scale, "1 / sqrt 2 of it off the diagonal"
        if self.trust.joint_matrix:
            return f", {scale:g} times as large on x x'" if scale != 1 else ""
        return f", {scale:g} times as large on x x', {off}" if scale != 1 else f", {off} of x x'"

    def _why(self, timing: Timing) -> Iterator[str]:
        yield "every statistic that leaves the mechanism has noise of a known distribution"
        rule, one = self.statistic.rule, self.statistic.bounds
        if not is_plain(rule):
            bounds = f"weights up to {one.weight:g} and responses up to {one.response:g}"
            yield f"each user adds {rule!r}, with {bounds}"
        if not struct.is_sealed(rule):
            yield "this statistic is user-defined: its code sees one user at a time, and its values are clipped"
        if self.statistic.late:
            yield "a delayed reward enters the batch in which it arrives"
        if self.statistic.drops:
            few = self.trust.away == "few"
            who = f"up to {self.trust.dropouts} of {self.n_agents} silos" if few else "any silos"
            yield f"{who} may miss a synchronisation, independently of users' data"
            if few:
                yield "nothing is released if more silos are missing"
            yield "a silo adds unsent sums to its next message" if self.resends else "sums of missing silos are lost"
        if self._pure(timing):
            yield "epsilon includes each silo's private tests of its own users"
        if isinstance(self.trust, BoundGaussian):
            yield "the user-defined trust model says which party adds the noise and what each party sees"

    def _objection(self, timing: Timing, batch: int | None) -> str:
        release, model = self.release, type(self.trust)
        if not struct.is_sealed(release):
            return f"{type(release).__name__} was put in after binding, which checks a release"
        size = getattr(release, "size", release.n_syncs)  # of states, which keep the noise
        if not size >= release.n_syncs:
            return f"{type(release).__name__} keeps {size} of {release.n_syncs} synchronisations"
        if not struct.is_sealed(self.trust):
            return f"{model.__name__} is a user-defined trust model, and its code is not proved"
        one = self.statistic
        if wrong := one.objection() or compatibility.objection(self.tags | timing.tags):
            return wrong
        if self.waits and model.away == "few" and not (timing.total or math.inf) <= self.held:
            return f"a message may hold sums of all {timing.total} rounds, and there is room for {int(self.held)}"
        if np.shape(self.epsilon) not in ((1,), (self.n_agents,)):
            return f"it has {np.size(self.epsilon)} budgets for {self.n_agents} silos"
        if type(self.longest) is not int or self.longest < 1:
            return f"longest must be an integer >= 1, got {self.longest!r}"
        if not struct.is_sealed(self.users) or not all(type(n) is int and n >= 1 for n in self.users.bounds):
            return f"bounds of contributions must be integers >= 1, got {self.users}"
        if self.users.visits % self.users.most:
            return f"per_batch must divide visits, got {self.users}"
        if self.enforced and not one.n_users:
            return "users are not identified, so their contributions cannot be left out"
        if self.enforced and self.users.reach < one.silos:
            return f"users visit up to {one.silos} silos, and the bounds are for {self.users.silos}"
        if self.together and (one.drops or self.n_agents < one.silos):
            return f"users visit up to {one.silos} silos, which do not count together"
        if self.enforced and self.users.silos == TOGETHER and not self.together:
            return "the bounds are for silos that count together, and these do not"
        if one.n_users and not self.enforced and self.users != ONCE:
            return "users return, and no silo leaves out contributions beyond the bounds"
        if not 0 <= self._pure(timing) < math.inf:
            return "the schedule's tests have too little noise to compute an epsilon"
        if timing.n_agents not in (None, self.n_agents):
            return f"the schedule tests {timing.n_agents} silos, and there are {self.n_agents}"
        if model.batches != "any" and self.batch is None:
            return "it needs batches of known sizes"
        if model.batches == "fixed" and not timing.fixed:
            if not (timing.longest or math.inf) <= (self.batch or 0):
                return f"it is bound to batches of at most {self.batch} rounds, and runs with up to {timing.longest}"
        elif self.batch is not None and batch != self.batch:
            return f"it is bound to batches of {self.batch} rounds, and runs with {batch}"
        return self.trust.objection(self.requirement(0, timing.pure))

    def _unit(self) -> str:
        one = self.users
        if self.enforced:
            who = "silos tell each other which visits they admit, and" if self.together else "silos"
            return f"one user: all their contributions, {one.sentence}; {who} leave out contributions beyond that"
        if self.statistic.n_users:
            only = "one interaction: the data of one user in one round"
            return f"{only}; users return, and several rounds of one user are not protected together"
        if one == ONCE:
            return "one user with one visit: every arrival counts as a new user, as the environment declares"
        return f"one user, who contributes {one.sentence}; this is a promise, because users are not identified"

    def _pure(self, timing: Timing) -> float:
        return float(self.users.together * np.max(timing.pure))

    def requirement(self, i: int, pure: Any = 0.0) -> Requirement:
        """Returns the request of silo i, or of all together, to the trust model; `pure` as in `Timing`."""
        spent, n = np.asarray(pure, float).reshape(-1), len(self.epsilon)
        return Requirement(
            budget=self.budget(i),
            release=self.release,
            users=self.users.anyhow if self.waits else self.users,
            by_silo=self.trust.per_silo,
            joint_matrix=self.trust.joint_matrix,
            n_agents=self.n_agents,
            dropouts=self.trust.dropouts,
            held=int(self.held),
            batch=self.batch or 1,
            dim=self.statistic.dim,
            moves_sq=self.statistic.sensitivity_sq(self.adjacency),
            rounding=self.statistic.rounding(self.n_agents * self.longest),
            pure=float(self.users.together * (spent[i] if len(spent) == n else spent.max())),
        )
