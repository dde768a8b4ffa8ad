"""The certificate of a linear algorithm whose silos add Gaussian noise to their releases."""

from __future__ import annotations

import math

from fedbandit_jax.certificate import Certificate, Claim
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.budget import ADJACENCY
from fedbandit_jax.privacy.calibration import Calibration
from fedbandit_jax.privacy.releases import Release

FIXED = "one user's rewards changed; contexts are fixed for each silo and public"


def server_std(sigma: float, spec: Spec, release: Release | None) -> float:
    """Largest standard deviation of an entry of the server's sums over all synchronisations."""
    return 0.0 if release is None else sigma * math.sqrt(spec.n_agents * release.prefix_variance().max())


def silo_local(noise: Calibration, spec: Spec, *, lazy: bool, clip_rewards: bool) -> Certificate:
    """What silo-local Gaussian releases prove in an environment with features of norm <= 1."""
    bounded = spec.rewards_in_unit or clip_rewards
    claim, reason = _claim(noise, lazy=lazy, bounded=bounded)
    budget = noise.budget
    return Certificate(
        claim=claim,
        reason=reason,
        trust="silo-local: each silo adds its own noise, server and other silos are not trusted",
        adjacency=f"{budget.adjacency} ({FIXED if spec.fixed_contexts else ADJACENCY[budget.adjacency]})",
        unit="one user, that is one arrival at one silo; users do not return",
        epsilon=budget.epsilon,
        delta=budget.delta,
        epsilon_exact=noise.epsilon_exact if bounded else math.inf,
        accountant="exact Gaussian differential privacy, joint over bias and covariance, adaptive",
        noise_std=noise.sigma,
        server_noise_std=server_std(noise.sigma, spec, releases.make(noise.release, noise.n_syncs)),
        releases=noise.n_syncs,
        releases_per_user=round(noise.releases_per_user),
        not_covered=_not_covered(lazy, spec.fixed_contexts),
    )


def nothing_released(reason: str, *, lazy: bool) -> Certificate:
    """No synchronisation, so no message leaves a silo."""
    return Certificate(
        claim="certified", reason=f"nothing is released: {reason}", not_covered=_not_covered(lazy, False)
    )


def _not_covered(lazy: bool, fixed_contexts: bool) -> tuple[str, ...]:
    return (
        "the synchronisation schedule and the number of users (fixed in advance, not private)",
        "a user's own recommendation, seen by that user alone",
        *(() if lazy else ("actions inside a batch, which use raw statistics",)),
        *(("contexts, which are fixed and public",) if fixed_contexts else ()),
        "features longer or rewards wider than the environment declares",
        "what only a simulator sees: regret curves, checkpoints",
        "floating-point attacks: the noise is pseudo-random float32",
    )


def _claim(noise: Calibration, *, lazy: bool, bounded: bool) -> tuple[Claim, str]:
    """The strongest statement that is true of what runs."""
    gives = f"{noise.method!r} noise gives epsilon = {noise.epsilon_exact:.4g} at delta = {noise.budget.delta:g}"
    fixed = "" if lazy else ", and that only if the actions stay fixed"
    if not bounded:
        return "none", (
            "rewards unbounded: they enter the statistics unclipped, so no sensitivity bound holds; were they in "
            f"[0, 1], {gives}{fixed}"
        )
    if not noise.sound:
        return "none", f"{gives}, not {noise.budget.epsilon:g}{fixed}"
    if not lazy:
        return "as_printed", (
            "holds for sequences (x_t, y_t) that differ in one entry, the actions of all other users being fixed; "
            "replacing a user also changes later actions of the same batch (the batch cascade), which is not covered; "
            "lazy=True is"
        )
    return "certified", "every release is a Gaussian mechanism on statistics that only earlier releases steer"
