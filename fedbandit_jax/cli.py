"""Command line: `fedbandit simulate`, `calibrate`, `audit`, `show`, `data`. All of it calls the public API."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from fedbandit_jax._core import validate
from fedbandit_jax._core.files import check_writable
from fedbandit_jax.results import Result

Data = Literal["sphere", "digits", "breast_cancer", "mslr"]


def simulate(
    env: Data = "sphere",
    epsilon: tuple[float, ...] = (1.0,),
    delta: float = 0.1,
    adjacency: Literal["replace", "add_remove"] = "replace",
    horizon: int = 4000,
    batch: int = 25,
    agents: int | None = None,
    arms: int = 100,
    dim: int = 10,
    rewards: Literal["bernoulli", "gaussian", "clipped_gaussian"] | None = None,
    exploration_scale: float = 1.0,
    seeds: int = 8,
    seed: int = 0,
    mslr: Path | None = None,
    out: Path = Path("results"),
) -> None:
    """Compare FedLinUCB with Private-FedLinUCB, as printed in the paper and as certified.

    Five algorithms see the same users and the same reward noise: FedLinUCB without privacy; Private-FedLinUCB as
    printed (Zhou & Chowdhury 2024, Algorithm 1 with the noise of Theorem 5.1); and three that are certified because
    they act on synchronised statistics only (Algorithm 8): with exactly the noise that the budget needs, with less
    noise for the same guarantee (BLT, and confidence widths that know its law), and the same with secure aggregation.
    Prints regrets, paired differences and certificates; writes OUT/ENV.npz, .json and .png, over those of an earlier
    run. Stopped by Ctrl-C, the same command continues where it was.

    Examples:
      fedbandit simulate
      fedbandit simulate --env digits
      fedbandit simulate --epsilon 0.2 1 5 --seeds 25 --horizon 10000

    Args:
        env: sphere is the paper's synthetic instance; digits and breast_cancer are scikit-learn's data as linear
            bandits; mslr needs --mslr.
        epsilon: privacy budgets, each > 0.
        delta: in (0, 1).
        adjacency: what one user's change means: replaced by any other user, or removed.
        horizon: T, rounds.
        batch: B, rounds between synchronisations; the last T mod B rounds are never synchronised.
        agents: M, silos (default: 100 on sphere, 10 on real data).
        arms: K, sphere only.
        dim: d, sphere only.
        rewards: default bernoulli (clipped_gaussian on mslr, whose means can be negative); gaussian rewards, the
            paper's, are clipped to [0, 1] inside private statistics.
        exploration_scale: factor on the confidence width.
        seeds: independent repetitions, run together.
        seed: of the random number generator.
        mslr: folder of a copy of MSLR-WEB10K.
        out: folder for the results.
    """
    import jax

    import fedbandit_jax as fb

    check_writable("out", out)
    _check_budgets(epsilon, delta)
    batch = validate.integer("batch", batch, at_least=1)
    horizon = validate.integer("horizon", horizon, at_least=batch)
    validate.within("seed", seed, 0, 2**32 - 1)
    rewards = rewards or ("clipped_gaussian" if env == "mslr" else "bernoulli")
    if env == "sphere":
        world = fb.envs.sphere(100 if agents is None else agents, arms, dim, rewards=rewards)
        title = f"sphere: M={world.spec.n_agents}, K={arms}, d={dim}"
    else:
        if env == "mslr":
            if mslr is None:
                raise ValueError("mslr must be the folder of a copy of MSLR-WEB10K when env is 'mslr', got None")
            table = fb.data.mslr(mslr)
        else:
            table = fb.data.classification(env)
        m = 10 if agents is None else agents
        world = fb.envs.replay(**table.replay_arguments(), n_agents=m, rewards=rewards)
        title = f"{table.title}: M={m}, K={world.spec.n_arms}, d={world.spec.dim}"
    common: dict[str, Any] = dict(batch=batch, exploration_scale=exploration_scale)
    best: dict[str, Any] = dict(release="blt", regularizer="project", confidence="known_noise", **common)
    budget = fb.privacy.Budget(epsilon[0], delta, adjacency)
    algos = [
        fb.algos.fed_lin_ucb(**common),
        fb.algos.private_fed_lin_ucb(
            budget, calibration="theorem", lazy=False, name="Private-FedLinUCB, Alg. 1 + Thm 5.1", **common
        ),
        fb.algos.private_fed_lin_ucb(budget, name="Private-FedLinUCB, Alg. 8 + exact noise", **common),
        fb.algos.private_fed_lin_ucb(budget, name="Private-FedLinUCB, BLT noise", **best),
        fb.algos.private_fed_lin_ucb(budget, name="Private-FedLinUCB, secure aggregation", trust="secagg", **best),
    ]
    budgets = f"ε={'/'.join(f'{value:g}' for value in epsilon)}, δ={delta:g}"
    request = repr((env, epsilon, delta, adjacency, horizon, batch, agents, arms, dim, rewards))
    request += repr((exploration_scale, seeds, seed))
    checkpoint = out / f".{env}-{hashlib.sha256(request.encode()).hexdigest()[:8]}.checkpoint"
    result = fb.sweep(
        world,
        algos,
        grid={"epsilon": epsilon},
        horizon=horizon,
        key=jax.random.key(seed),
        n_seeds=seeds,
        progress=True,
        checkpoint=checkpoint,
        throw=False,
    )
    _report(result)
    if horizon % batch:
        print(f"\nThe last {horizon % batch} of {horizon} rounds came after the last synchronisation.")
    saved = result.save(out / env)
    picture = fb.plotting.save_png(fb.plotting.regret(result, title=f"{title}, {budgets}"), out / f"{env}.png")
    for part in out.glob(f"{checkpoint.name}.*"):
        part.unlink()
    print(f"\nwrote {saved}, {saved.with_suffix('.json')} and {picture}")


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

    Examples:
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
    from fedbandit_jax.privacy.calibration import METHODS, TRUST, check
    from fedbandit_jax.privacy.releases import make

    _check_budgets(epsilon, delta)
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

    Examples:
      fedbandit audit
      fedbandit audit --only blt secagg --runs 1000000
      fedbandit audit --controls tests/privacy/broken.py     mechanisms with known flaws must be caught

    Args:
        only: audit mechanisms whose name contains one of these words.
        runs: per neighbour.
        confidence: of each lower bound.
        controls: a Python file whose functions `broken_*()` return cases that must fail.
        seed: of the random number generator.
        out: folder for the picture.
    """
    import jax

    from fedbandit_jax import audits, plotting
    from fedbandit_jax.privacy.audit import table

    check_writable("out", out)
    validate.integer("runs", runs, at_least=1000)
    validate.probability("confidence", confidence)
    validate.within("seed", seed, 0, 2**32 - 1)
    groups = {"shipped": audits.shipped()}
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
    picture = plotting.save_png(plotting.audits(found), out / "audit.png")
    print(
        f"\nwrote {picture}; epsilon >= holds with confidence {confidence:g} each, sensitivity is measured / declared"
    )
    n_shipped = len(groups["shipped"])
    print(f"{n_shipped} shipped mechanisms" + (f", {len(found) - n_shipped} controls" if controls else ""), end=": ")
    print("all as they should be" if not wrong else "NOT as they should be: " + ", ".join(one.name for one in wrong))
    if wrong:
        raise SystemExit(1)


def show(result: tyro.conf.Positional[Path]) -> None:
    """Print the summary and the certificates of a saved result, and draw it again beside it.

    Args:
        result: an .npz or .json file written by `simulate` or `Result.save`.
    """
    from fedbandit_jax import plotting

    loaded = Result.load(result)
    _report(loaded)
    picture = result.with_name(result.name.removesuffix(".npz").removesuffix(".json") + ".png")
    print(f"\nwrote {plotting.save_png(plotting.regret(loaded), picture)}")


def data(
    dataset: tyro.conf.Positional[Literal["mslr"]],
    path: Path,
    features: Literal["title", "body"] = "title",
) -> None:
    """Check your copy of a data set that cannot be redistributed, and cache it for fast loading.

    Args:
        dataset: mslr is MSLR-WEB10K, a folder with Fold1/train.txt, vali.txt and test.txt.
        path: folder of your copy.
        features: which features to cache.
    """
    import fedbandit_jax as fb

    del dataset
    table = fb.data.mslr(path, features=features)
    print(
        f"{table.title}: {len(table.query_sizes)} queries, {len(table.features)} documents, at most "
        f"{table.query_sizes.max()} a query, d = {table.features.shape[1]}"
    )


def _check_budgets(epsilon: tuple[float, ...], delta: float) -> None:
    from fedbandit_jax.privacy import Budget

    if not epsilon:
        raise ValueError("epsilon must name at least one budget, got none")
    for value in epsilon:
        Budget(value, delta)


def _report(result: Result) -> None:
    print("\n" + result.summary())
    for label in result.labels:
        if result[label].certificate.epsilon is not None:
            print(f"\nCertificate of {label}\n{result[label].certificate}")


COMMANDS = {"simulate": simulate, "calibrate": calibrate, "audit": audit, "show": show, "data": data}


def main(args: Annotated[list[str] | None, tyro.conf.Suppress] = None) -> int:
    """Entry point: errors are one sentence on stderr, exit code 2."""
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="fedbandit",
            description="Simulate differentially private federated bandits, with certificates you can trust.",
            args=args,
        )
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"fedbandit: {error}", file=sys.stderr)
        return 2
    except (MemoryError, OverflowError) as error:
        print(f"fedbandit: a number is too large for this machine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        resumes = (sys.argv[1:] if args is None else args)[:1] == ["simulate"]
        again = "; the same command continues where it was" if resumes else ""
        print(f"\nfedbandit: stopped{again}", file=sys.stderr)
        return 130
    return 0
