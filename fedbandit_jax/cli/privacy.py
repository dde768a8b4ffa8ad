"""`fedbandit calibrate` and `fedbandit audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fedbandit_jax.cli._run import check_budgets
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable


def calibrate(
    epsilon: tuple[float, ...] = (0.2, 1.0, 5.0),
    delta: float = 0.1,
    adjacency: Literal["replace", "add_remove"] = "replace",
    horizon: int = 10_000,
    batch: int = 25,
    agents: int = 100,
    dim: int = 10,
    release: str = "tree",
    trust: str = "silo_local",
    visits: int = 1,
    sigma: float | None = None,
) -> None:
    """Print how much noise each budget needs, by every way of finding it, and what that noise really gives.

    theorem: as printed in Zhou & Chowdhury (2024), Theorem 5.1 (Lemma F.2, Theorem 5.5 for shuffling). released: the
    authors' code. tight: exact. Releases: tree, prefix_tree, honaker, sqrt_toeplitz, blt, input_perturbation. Trust
    models: silo_local, shuffle_amplified, shuffle_vector_sum, secagg, central, local.

    For example:
      fedbandit calibrate
      fedbandit calibrate --release blt --delta 1e-5
      fedbandit calibrate --trust secagg --release blt
      fedbandit calibrate --sigma 5.45 --delta 0.1      what epsilon does this noise give?

    Args:
        epsilon: privacy budgets, each > 0.
        delta: in (0, 1).
        adjacency: what one user's change means: replaced by any other user, or removed.
        horizon: T, rounds.
        batch: B, rounds between synchronisations.
        agents: M, silos.
        dim: d, features.
        release: continual-release mechanism.
        trust: who adds the noise.
        visits: how often one user may come to her silo.
        sigma: instead of calibrating, the epsilon of Gaussian noise with this standard deviation on every message.
    """
    from fedbandit_jax.privacy import Budget, epsilon_of
    from fedbandit_jax.privacy import calibrate as find
    from fedbandit_jax.privacy.releases import make
    from fedbandit_jax.privacy.trust.calibration import METHODS, TRUST, check

    check_budgets(epsilon, delta)
    batch = validate.integer("batch", batch, at_least=1)
    for name, value in (("agents", agents), ("dim", dim), ("visits", visits)):
        validate.integer(name, value, at_least=1)
    n_syncs = validate.integer("horizon", horizon, at_least=batch) // batch
    check(trust=trust, release=release, method="tight")
    print(f"{trust}, {release}, S = {n_syncs} releases, {adjacency} adjacency, delta = {delta:g}")
    if sigma is not None:
        if trust not in ("silo_local", "central", "local"):
            raise ValueError(f"trust must be silo_local, central or local with sigma (Gaussian noise), got {trust!r}")
        common: dict[str, Any] = dict(delta=delta, n_syncs=n_syncs, release=release, adjacency=adjacency)
        print(f"sigma = {sigma:g} gives epsilon = {epsilon_of(sigma, visits=visits, **common):.6g}")
        return
    worst = make(release, n_syncs).largest_variance()
    print(
        f"{'epsilon':>8} {'method':>9} {'sigma':>11} {'sigma^2':>11} {'server std':>11} {'really epsilon':>15}  sound"
    )
    for value in epsilon:
        for method in METHODS:
            try:
                check(trust=trust, release=release, method=method)
            except ValueError:
                continue  # the papers have no such method for this release or trust model
            try:
                c = find(
                    Budget(value, delta, adjacency),
                    n_syncs=n_syncs,
                    release=release,
                    method=method,
                    trust=trust,
                    visits=visits,
                    n_agents=agents,
                    batch=batch,
                    dim=dim,
                )
            except ValueError as error:
                if method == "tight":
                    raise
                print(f"{value:8g} {method:>9} {error}")
                continue
            server = c.protocol.sum_std() * worst**0.5
            print(
                f"{value:8g} {method:>9} {c.sigma:11.5g} {c.sigma**2:11.5g} {server:11.5g} {c.epsilon_exact:15.5g}  "
                f"{'yes' if c.sound else 'NO'}"
            )
    print(f"sigma: std of every entry of the noise {TRUST[trust].whose}; server std: the largest in the server's sums.")


def audit(
    family: Literal["all", "linear", "schedules", "arms", "clusters"] = "all",
    only: tuple[str, ...] = (),
    runs: int = 100_000,
    confidence: float = 0.95,
    controls: Path | None = None,
    seed: int = 0,
    out: Path = Path("results"),
) -> None:
    """Try to refute the privacy claim of every shipped mechanism, by running it on neighbours that differ in one user.

    For each mechanism: a lower bound of epsilon that holds with the stated confidence, and whether equal randomness
    gives the declared sensitivity and the same control flow. A bound above the claim is a proof of a broken mechanism;
    one below it proves nothing, but at 100,000 runs a noise scale wrong by a third is found. Prints a table, writes
    OUT/audit.png, and exits with 1 if anything is not as it should be.

    For example:
      fedbandit audit
      fedbandit audit --family arms
      fedbandit audit --family schedules    what is learned from when silos synchronise
      fedbandit audit --family clusters     all phases of certified FCLUB together
      fedbandit audit --only blt secagg --runs 1000000
      fedbandit audit --controls tests/privacy/broken.py     mechanisms with known flaws must be caught

    Args:
        family: of algorithms; arms also prints the exact log-ratios of noisy sums modulo m.
        only: audit mechanisms whose name contains one of these words.
        runs: per neighbour.
        confidence: of each lower bound.
        controls: a Python file whose functions `broken_*()` return cases that must fail.
        seed: of the random number generator.
        out: folder for the picture.
    """
    import jax

    from fedbandit_jax import audits
    from fedbandit_jax.report import plotting
    from fedbandit_jax.report.audit import table

    check_writable("out", out)
    validate.integer("runs", runs, at_least=1000)
    validate.probability("confidence", confidence)
    validate.within("seed", seed, 0, 2**32 - 1)
    groups = {"shipped": audits.shipped(*([] if family == "all" else [family]))}
    if controls is not None:
        groups["control"] = audits.load(controls)
    if only:
        known = [case.name for case in groups["shipped"]]
        groups = {group: [c for c in cases if any(word in c.name for word in only)] for group, cases in groups.items()}
        if not any(groups.values()):
            raise ValueError(f"only must name a part of {', '.join(known)}, got {' '.join(only)}")
    found, wrong = [], []
    for group, cases in groups.items():
        if not cases:
            continue
        result = audits.run(cases, key=jax.random.key(seed), n_runs=runs, confidence=confidence, progress=True)
        print("these have known flaws and must fail:" if group == "control" else "", table(result), sep="\n")
        found += result
        wrong += [one for one in result if one.passed != (group == "shipped")]
        if group == "shipped":
            for one in result:
                for reason in one.reasons:
                    print(f"{one.name}: {reason}")
    if family in ("all", "arms") and not only:
        wrong += _exact_log_ratios(audits.log_ratios())
    picture = plotting.save_png(plotting.audits(found), out / "audit.png")
    print(
        f"\nwrote {picture}; epsilon >= holds with confidence {confidence:g} each, sensitivity is measured / declared"
    )
    n_shipped = len(groups["shipped"])
    print(f"{n_shipped} shipped mechanisms" + (f", {len(found) - n_shipped} controls" if controls else ""), end=": ")
    print("all as they should be" if not wrong else "NOT as they should be: " + ", ".join(one.name for one in wrong))
    if wrong:
        raise SystemExit(1)


def _exact_log_ratios(ratios: list[Any]) -> list[Any]:
    """Prints the largest of every mechanism; returns those above their claim."""
    print("\nexact log-ratios of noisy sums modulo m, one user changed, nothing sampled")
    print("(LDP-SE: of every message; Shuffle-DP-SE: half of epsilon is the sum's, and half is charged for its bits):")
    for name in dict.fromkeys(ratio.name for ratio in ratios):
        mine = [ratio for ratio in ratios if ratio.name == name]
        worst = max(mine, key=lambda ratio: ratio.exact)
        sizes = f"{len(mine)} batches of {mine[0].users} to {mine[-1].users:,} users"
        print(f"  {name:<14} {sizes}: at most {worst.exact:.6f} (m = {worst.modulus:,}), claimed {worst.claimed:g}")
    return [ratio for ratio in ratios if not ratio.exact <= ratio.claimed * (1 + 1e-9)]
