"""The certificate of a linear algorithm whose statistics reach the server through a release and a protocol."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedbandit_jax.certificate import Certificate, Claim
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.budget import ADJACENCY
from fedbandit_jax.privacy.trust.calibration import TRUST, Calibration
from fedbandit_jax.privacy.trust.protocols import Protocol
from fedbandit_jax.schedules import Schedule

FIXED = "one user's rewards changed; contexts are fixed for each silo and public"


def certify(
    noises: Sequence[Calibration],
    protocol: Protocol,
    spec: Spec,
    *,
    lazy: bool,
    clip_rewards: bool,
    schedule: Schedule,
) -> Certificate:
    """What the noise of all silos (or of each) proves in an environment with features of norm <= 1."""
    bounded = spec.rewards_in_unit or clip_rewards
    claim, reason = _claim(noises, lazy=lazy, bounded=bounded, leaks=schedule.leaks)
    worst = max(noises, key=lambda noise: noise.epsilon_exact)
    budget, trust = worst.budget, TRUST[worst.trust]
    variance = releases.make(worst.release, worst.n_syncs).largest_variance()
    times = "once; users do not return" if worst.visits == 1 else f"up to {worst.visits} times, always to the same silo"
    return Certificate(
        claim=claim,
        reason=reason,
        trust=trust.sentence,
        adjacency=f"{budget.adjacency} ({FIXED if spec.fixed_contexts else ADJACENCY[budget.adjacency]})",
        unit=f"one user, who comes {times}",
        epsilon=budget.epsilon,
        delta=budget.delta,
        epsilon_exact=worst.epsilon_exact if bounded and not schedule.leaks else math.inf,
        accountant=worst.accountant,
        noise_std=worst.sigma,
        noise_whose=f"per entry {trust.whose}",
        server_noise_std=protocol.sum_std() * math.sqrt(variance),
        releases=worst.n_syncs,
        releases_per_user=worst.releases_per_user,
        per_silo=tuple((n.budget.epsilon, n.budget.delta, n.epsilon_exact) for n in noises) if len(noises) > 1 else (),
        schedule=schedule.sentence + (f" (epsilon = {worst.pure:g})" if worst.pure else ""),
        not_covered=(*(trust.assumes if worst.assuming else ()), *_not_covered(lazy, spec.fixed_contexts)),
    )


def nothing_released(reason: str, *, lazy: bool) -> Certificate:
    """No synchronisation, so no message leaves a silo."""
    return Certificate(
        claim="certified", reason=f"nothing is released: {reason}", not_covered=_not_covered(lazy, False)
    )


def _not_covered(lazy: bool, fixed_contexts: bool) -> tuple[str, ...]:
    return (
        "the number of users (fixed in advance, not private)",
        "a user's own recommendation, seen by that user alone",
        *(() if lazy else ("actions inside a batch, which use raw statistics",)),
        *(("contexts, which are fixed and public",) if fixed_contexts else ()),
        "features longer or rewards wider than the environment declares",
        "what only a simulator sees: regret curves, checkpoints",
        "floating-point attacks: noise is pseudo-random, all arithmetic float32",
    )


def _claim(noises: Sequence[Calibration], *, lazy: bool, bounded: bool, leaks: bool) -> tuple[Claim, str]:
    """The strongest statement that is true of what runs."""
    noise = max(noises, key=lambda noise: noise.epsilon_exact / noise.budget.epsilon)
    gives = f"{noise.method!r} noise gives epsilon = {noise.epsilon_exact:.4g} at delta = {noise.budget.delta:g}"
    fixed = "" if lazy else ", and that only if the actions stay fixed"
    if not bounded:
        return "none", (
            "rewards unbounded: they enter the statistics unclipped, so no sensitivity bound holds; were they in "
            f"[0, 1], {gives}{fixed}"
        )
    if leaks:
        return "none", (
            "the schedule leaks: whether a silo asks for a synchronisation depends on its users' data without noise "
            f"(Zhou & Chowdhury 2024, Example 3.1), so no epsilon holds; were it fixed, {gives}{fixed}"
        )
    if not noise.sound:
        return "none", f"{gives}, not {noise.budget.epsilon:g}{fixed}"
    if not lazy:
        return "as_printed", (
            "holds for sequences (x_t, y_t) that differ in one entry, the actions of all other users being fixed; "
            "replacing a user also changes later actions of the same batch (the batch cascade), which is not covered; "
            "lazy=True is"
        )
    if noise.pure:
        return "certified", (
            "noise of known law is on every statistic that leaves the protocol; earlier ones steer it, and each silo's "
            "sparse vector tests of its own users, which are charged"
        )
    return (
        "certified",
        "noise of known law is on every statistic that leaves the protocol, and only earlier ones steer it",
    )
