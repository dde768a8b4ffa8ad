"""The proof of a mechanism with noise: objections to it, and its certificate.

All of this is computed on the host, from the fields that `noisy_sums` draws with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.privacy import compatibility, tails
from fedbandit_jax.privacy.bound import NOT_COVERED, VISIT_TIMES, PrivateMechanism, Timing
from fedbandit_jax.privacy.budget import ADJACENCY
from fedbandit_jax.privacy.statistic import is_plain
from fedbandit_jax.privacy.sums import too_coarse
from fedbandit_jax.privacy.users import ONCE, TOGETHER, objection_to

ABSENCES = "the synchronisations that each silo misses"  # if silos drop out
ARRIVAL_TIMES = "arrival times of delayed rewards, which must be independent of the rewards"
MOST_USERS = 2**30  # added up before `absorb` or `step`
# for "replace" only: changing a reward may move sums more than leaving it out
FIXED_CONTEXTS = "one user's rewards changed; contexts are fixed for each silo and public"


def certificate(mechanism: PrivateMechanism, timing: Timing, batch: int | None) -> Certificate:
    """Returns the certificate for a schedule that uses batches of `batch` rounds (None: of any size)."""
    if wrong := next(filter(None, objections(mechanism, timing, batch)), ""):
        return no_privacy(f"nothing is proved of this mechanism: {wrong}")
    trust, one, several = mechanism.trust, mechanism.statistic, len(mechanism.epsilon) > 1
    needs = [mechanism.requirement(i, timing.pure) for i in range(len(mechanism.epsilon))]
    proofs = [(trust.silo(i) if several else trust).proof(need) for i, need in enumerate(needs)]
    pairs = [(need.budget, proof) for need, proof in zip(needs, proofs)]
    budget, proof = max(pairs, key=lambda pair: pair[1].epsilon / pair[0].epsilon)
    asked, worst = max(pairs, key=lambda pair: pair[1].epsilon)
    largest, spent = float(np.max(mechanism.epsilon)), mechanism.spent(timing.pure)
    smallest = tails.smallest_delta(largest, trust.missing(needs[0]))
    gives = f"the noise gives epsilon = {proof.epsilon:.4g} at delta = {budget.delta:g}"
    reason = coarse_sums = coarse(mechanism, batch)
    if not one.bounded:
        why = "rewards enter unclipped, so no bound on the sensitivity holds"
        reason = f"{why}; within the range of {one.rule!r} {gives}"
    elif not smallest < budget.delta:
        reason = tails.sentence(smallest, largest, budget.delta)
    elif not proof.epsilon <= budget.epsilon:
        reason = f"{gives}, not {budget.epsilon:g}"
    adjacency, fixed = mechanism.adjacency, one.fixed_contexts
    return Certificate(
        claim="none" if reason else "certified",
        reason=reason or "; ".join(_grounds(mechanism, spent)),
        trust=trust.sentence,
        trusted=type(trust).trusted,
        adjacency=f"{adjacency} ({FIXED_CONTEXTS if fixed and adjacency == 'replace' else ADJACENCY[adjacency]})",
        neighbours=adjacency,
        unit=mechanism.users.unit(enforced=mechanism.enforced, returning=one.n_users > 0),
        whole_user=mechanism.enforced or not one.n_users,
        epsilon=asked.epsilon,
        delta=asked.delta,
        epsilon_exact=worst.epsilon if one.bounded and not coarse_sums else math.inf,
        smallest_delta=smallest,
        accountant=worst.accountant,
        noise_std=worst.sigma,
        noise_whose=_whose(mechanism),
        server_noise_std=float(mechanism.stds().max()),
        release=getattr(mechanism.release, "of", type(mechanism.release).__name__),
        releases=int(mechanism.release.n_syncs),
        releases_per_user=needs[0].kappa,
        sensitivity=(worst.moves or needs[0].sensitivity) if one.bounded and not trust.needs_users else None,
        per_silo=tuple((asks.epsilon, asks.delta, gives.epsilon) for asks, gives in pairs) if several else (),
        schedule=timing.sentence + (f" (epsilon = {spent:g})" if spent else ""),
        not_covered=(
            *worst.assumes,
            *[VISIT_TIMES] * mechanism.enforced,
            *[ARRIVAL_TIMES] * one.late,
            *[ABSENCES] * one.drops,
            *NOT_COVERED,
            *["contexts, which are fixed and public"] * fixed,
        ),
    )


def coarse(mechanism: PrivateMechanism, batch: int | None) -> str:
    """Returns why integers cannot hold the sum of a batch, or are too coarse for this noise; "" if neither.

    A loop of fixed batches adds up B rounds = `batch`. One without (None) hands rows to `absorb` after `longest`. Sums
    are exact, see `Steps`. If noise is on a grid, or depends on single users, the sum of the longest batch is rounded
    to float32. Each message that it enters is rounded about four times.
    """
    users = mechanism.n_agents * mechanism.longest
    if (batch or 0) > mechanism.longest:
        return f"it adds up at most {mechanism.longest} rounds at a time, and runs with batches of {batch}"
    if users > MOST_USERS:
        return f"at most {MOST_USERS:,} users can be added up at a time, got {users:,}"
    if not 16 * mechanism.stds().max() < 2.0**62 * mechanism.row_step:
        return "64-bit integers do not hold so much noise"
    if not (mechanism.trust.on_grid or mechanism.needs_users):
        return ""
    need, roundings = mechanism.requirement(0), 4 * mechanism.release.touched()
    move = need.sensitivity / math.sqrt(need.kappa)
    return too_coarse(mechanism.n_agents * need.largest, mechanism.trust.sum_std(), move, roundings)


def objections(mechanism: PrivateMechanism, timing: Timing, batch: int | None) -> Iterator[str]:
    """Yields the objections to any proof, some of them empty. Each assumes that there is none before it."""
    yield from _to_parts(mechanism, timing)
    yield from _to_users(mechanism)
    yield from _to_times(mechanism, timing, batch)
    yield mechanism.trust.objection(mechanism.requirement(0, timing.pure))


def _to_parts(mechanism: PrivateMechanism, timing: Timing) -> Iterator[str]:
    release, trust = mechanism.release, mechanism.trust
    if not struct.is_sealed(release):
        yield f"{type(release).__name__} was put in after binding, which checks a release"
    size = getattr(release, "size", release.n_syncs)  # of states, which keep the noise
    if not size >= release.n_syncs:
        yield f"{type(release).__name__} keeps {size} of {release.n_syncs} synchronisations"
    if not struct.is_sealed(trust):
        yield f"{type(trust).__name__} is a user-defined trust model, and its code is not proved"
    yield str(mechanism.statistic.objection() or "")
    yield compatibility.objection(mechanism.tags | timing.tags)
    if np.shape(mechanism.epsilon) not in ((1,), (mechanism.n_agents,)):
        yield f"it has {np.size(mechanism.epsilon)} budgets for {mechanism.n_agents} silos"


def _to_users(mechanism: PrivateMechanism) -> Iterator[str]:
    users, one, enforced = mechanism.users, mechanism.statistic, mechanism.enforced
    yield objection_to(users)
    if enforced and not one.n_users:
        yield "users are not identified, so their contributions cannot be left out"
    if enforced and users.reach < one.silos:
        yield f"users visit up to {one.silos} silos, and the bounds are for {users.silos}"
    if mechanism.together and (one.drops or mechanism.n_agents < one.silos):
        yield f"users visit up to {one.silos} silos, which do not count together"
    if enforced and users.silos == TOGETHER and not mechanism.together:
        yield "the bounds are for silos that count together, and these do not"
    if one.n_users and not enforced and users != ONCE:
        yield "users return, and no silo leaves out contributions beyond the bounds"


def _to_times(mechanism: PrivateMechanism, timing: Timing, batch: int | None) -> Iterator[str]:
    model, most = type(mechanism.trust), mechanism.batch
    if mechanism.waits and model.away == "few" and not (timing.total or math.inf) <= mechanism.held:
        yield f"a message may hold sums of all {timing.total} rounds, and there is room for {int(mechanism.held)}"
    if type(mechanism.longest) is not int or mechanism.longest < 1:
        yield f"longest must be an integer >= 1, got {mechanism.longest!r}"
    if not 0 <= mechanism.spent(timing.pure) < math.inf:
        yield "the schedule's tests have too little noise to compute an epsilon"
    if timing.n_agents not in (None, mechanism.n_agents):
        yield f"the schedule tests {timing.n_agents} silos, and there are {mechanism.n_agents}"
    if model.batches != "any" and most is None:
        yield "it needs batches of known sizes"
    if model.batches == "fixed" and not timing.fixed:
        if not (timing.longest or math.inf) <= (most or 0):
            yield f"it is bound to batches of at most {most} rounds, and runs with up to {timing.longest}"
    elif most is not None and batch != most:
        yield f"it is bound to batches of {most} rounds, and runs with {batch}"


def _grounds(mechanism: PrivateMechanism, spent: float) -> Iterator[str]:
    """Yields the reasons of the claim "certified"."""
    rule, one, trust = mechanism.statistic.rule, mechanism.statistic, mechanism.trust
    yield "every statistic that leaves the mechanism has noise of a known distribution"
    if not is_plain(rule):
        bounds = f"weights up to {one.bounds.weight:g} and responses up to {one.bounds.response:g}"
        yield f"each user adds {rule!r}, with {bounds}"
    if not struct.is_sealed(rule):
        yield "this statistic is user-defined: its code sees one user at a time, and its values are clipped"
    if one.late:
        yield "a delayed reward enters the batch in which it arrives"
    if one.drops:
        few = trust.away == "few"
        who = f"up to {trust.dropouts} of {mechanism.n_agents} silos" if few else "any silos"
        yield f"{who} may miss a synchronisation, independently of users' data"
        if few:
            yield "nothing is released if more silos are missing"
        yield "a silo adds unsent sums to its next message" if mechanism.resends else "sums of missing silos are lost"
    if spent:
        yield "epsilon includes each silo's private tests of its own users"
    if type(trust).trusted == "own":
        yield "the user-defined trust model says which party adds the noise and what each party sees"


def _whose(mechanism: PrivateMechanism) -> str:
    trust, n, scale = mechanism.trust, mechanism.n_agents, 1 / mechanism.statistic.bounds.gram_scale
    missing = trust.dropouts if trust.away == "few" else 0
    present = f", with {n - missing} of {n} silos present" if missing else ""
    larger = f", {scale:g} times as large on x x'" if scale != 1 else ""
    off = "" if trust.joint_matrix else ", 1 / sqrt 2 of it off the diagonal" + ("" if larger else " of x x'")
    return f"per entry {trust.whose}{present}{larger}{off}"
