"""Command line: `fedbandit simulate`, `calibrate`, `show`, `data`. Everything here is a call of the public API."""

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

    Three algorithms see the same users and the same reward noise: FedLinUCB without privacy; Private-FedLinUCB as
    printed (Zhou & Chowdhury 2024, Algorithm 1 with the noise of Theorem 5.1); and the variant that is certified: it
    acts on synchronised statistics only (Algorithm 8), with exactly the noise that the budget needs. Prints regrets,
    paired differences and certificates; writes OUT/ENV.npz, .json and .png, over those of an earlier run. Stopped by
    Ctrl-C, the same command continues where it was.

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
    budget = fb.privacy.Budget(epsilon[0], delta, adjacency)
    algos = [
        fb.algos.fed_lin_ucb(**common),
        fb.algos.private_fed_lin_ucb(
            budget, calibration="theorem", lazy=False, name="Private-FedLinUCB, Alg. 1 + Thm 5.1", **common
        ),
        fb.algos.private_fed_lin_ucb(budget, name="Private-FedLinUCB, Alg. 8 + exact noise", **common),
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
    release: Literal["tree", "prefix_tree"] = "tree",
) -> None:
    """Print how much noise each budget needs, by three ways of finding it, and what that noise really gives.

    theorem: as printed in Zhou & Chowdhury (2024), Theorem 5.1. released: the authors' code. tight: exact.

    Args:
        epsilon: privacy budgets, each > 0.
        delta: in (0, 1).
        adjacency: what one user's change means: replaced by any other user, or removed.
        horizon: T, rounds.
        batch: B, rounds between synchronisations.
        agents: M, silos, for the noise in the server's sums.
        release: continual-release mechanism.
    """
    from fedbandit_jax.privacy import Budget
    from fedbandit_jax.privacy import calibrate as find
    from fedbandit_jax.privacy.calibration import METHODS
    from fedbandit_jax.privacy.releases import make

    _check_budgets(epsilon, delta)
    batch = validate.integer("batch", batch, at_least=1)
    agents = validate.integer("agents", agents, at_least=1)
    n_syncs = validate.integer("horizon", horizon, at_least=batch) // batch
    worst = make(release, n_syncs).prefix_variance().max()
    print(f"{release}, S = {n_syncs} releases, {adjacency} adjacency, delta = {delta:g}")
    print(
        f"{'epsilon':>8} {'method':>9} {'sigma':>11} {'sigma^2':>11} {'server std':>11} {'really epsilon':>15}  sound"
    )
    for value in epsilon:
        for method in METHODS:
            c = find(Budget(value, delta, adjacency), n_syncs=n_syncs, release=release, method=method)
            server = c.sigma * (agents * worst) ** 0.5
            print(
                f"{value:8g} {method:>9} {c.sigma:11.5g} {c.sigma**2:11.5g} {server:11.5g} {c.epsilon_exact:15.5g}  "
                f"{'yes' if c.sound else 'NO'}"
            )
    print("sigma: std of every entry of the noise of one silo's release; server std: largest in the sums over silos.")


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


COMMANDS = {"simulate": simulate, "calibrate": calibrate, "show": show, "data": data}


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
    except KeyboardInterrupt:
        print("\nfedbandit: stopped; the same command continues where it was", file=sys.stderr)
        return 130
    return 0
