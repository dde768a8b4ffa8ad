"""`fedbandit simulate`: federated linear bandits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fedbandit_jax.cli._run import check_budgets, run_and_save
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable

Data = Literal["sphere", "digits", "breast_cancer", "mslr"]


def simulate(
    family: Literal["linear", "fed_ucb", "arms", "clustered"] = "linear",
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

    `fedbandit simulate --family fed_ucb --help` is about when to synchronise, and networks without a server;
    `--family arms --help` about multi-armed bandits.

    For example:
      fedbandit simulate
      fedbandit simulate --family fed_ucb
      fedbandit simulate --family arms
      fedbandit simulate --env digits
      fedbandit simulate --epsilon 0.2 1 5 --seeds 25 --horizon 10000

    Args:
        family: of algorithms.
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
    import fedbandit_jax as fb

    del family
    check_writable("out", out)
    check_budgets(epsilon, delta)
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
    notes = f"The last {horizon % batch} of {horizon} rounds came after the last synchronisation."
    run_and_save(
        world,
        algos,
        grid={"epsilon": epsilon},
        request=request,
        out=out,
        name=env,
        title=f"{title}, {budgets}",
        notes=notes if horizon % batch else "",
        horizon=horizon,
        n_seeds=seeds,
        seed=seed,
    )
