"""`fedbandit simulate --family fed_ucb`: adaptive communication, with a controller or over a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fedbandit_jax.cli._run import check_budgets, run_and_save
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import check_writable

Graph = Literal["complete", "ring", "line", "star", "grid", "erdos_renyi", "hierarchical"]


def simulate(
    family: Literal["linear", "fed_ucb", "arms", "clustered"] = "fed_ucb",
    epsilon: tuple[float, ...] = (1.0,),
    delta: float = 0.1,
    threshold: str = "20",
    trigger: Literal["zc24", "dp20"] = "zc24",
    share: float = 0.1,
    max_syncs: int = 100,
    growth: float = 1.2,
    graph: Graph | None = None,
    gamma: int = 1,
    agents: int = 20,
    arms: int = 20,
    dim: int = 5,
    gap: float = 0.1,
    exploration_scale: float = 1.0,
    horizon: int = 5_000,
    seeds: int = 8,
    seed: int = 0,
    out: Path = Path("results"),
) -> None:
    """Compare schedules of synchronisation on the instance of Dubey & Pentland (2020): adaptive or not, leaky or not.

    FedUCB synchronises when some agent has learned enough, which tells about its users: without noise, and
    with noise on everything but that. Beside it Private-FedLinUCB, certified, which asks the same question by a sparse
    vector test, or synchronises ever more rarely. With --graph also agents who pass messages on, without a controller.
    Prints regrets, paired differences, rounds of communication and certificates; writes OUT/fed_ucb.npz, .json and
    .png, over those of an earlier run. Stopped by Ctrl-C, the same command continues where it was.

    For example:
      fedbandit simulate --family fed_ucb
      fedbandit simulate --family fed_ucb --threshold "M log T" --trigger dp20
      fedbandit simulate --family fed_ucb --graph ring --gamma 2
      fedbandit simulate --family fed_ucb --epsilon 1 10 --share 0.3

    Args:
        family: of algorithms.
        epsilon: privacy budgets, each > 0.
        delta: in (0, 1).
        threshold: D, a number > 0; or "M log T" or "M^1.5", the paper's for that much communication.
        trigger: zc24 reads log det V_i; dp20, as printed, log det (V_i + M (rho_max - rho_min) I).
        share: of epsilon that the sparse vector tests spend, in (0, 1).
        max_syncs: most synchronisations by sparse vector tests; noise is calibrated for so many.
        growth: factor between rounds of the schedule that is fixed in advance, > 1.
        graph: network of the agents; default: a controller only.
        gamma: hops after which a message is dropped, 1 to the graph's diameter.
        agents: M >= 2.
        arms: K, 2 to d^2.
        dim: d.
        gap: between the best arm and the others, in (0, 0.3].
        exploration_scale: factor on the confidence width.
        horizon: T, rounds.
        seeds: independent repetitions, run together.
        seed: of the random number generator.
        out: folder for the results.
    """
    import fedbandit_jax as fb

    del family
    check_writable("out", out)
    check_budgets(epsilon, delta)
    horizon = validate.integer("horizon", horizon, at_least=1)
    validate.within("seed", seed, 0, 2**32 - 1)
    world = fb.envs.gap(agents, arms, dim, gap=gap)
    asked = fb.schedules.logdet(_threshold(threshold), trigger)
    private = fb.schedules.private_logdet(_threshold(threshold), share=share, max_syncs=max_syncs)
    budget, scale = fb.privacy.Budget(epsilon[0], delta), exploration_scale
    best: dict[str, Any] = dict(release="blt", regularizer="project", confidence="known_noise", exploration_scale=scale)
    fixed = fb.schedules.geometric(growth)
    algos = [
        fb.algos.fed_ucb(schedule=asked, regularization=1 / agents, exploration_scale=scale),
        fb.algos.fed_ucb(budget, schedule=asked, exploration_scale=scale, name="Private-FedUCB, leaky"),
        fb.algos.private_fed_lin_ucb(budget, batch=private, name="Private-FedLinUCB, sparse vector", **best),
        fb.algos.private_fed_lin_ucb(budget, batch=fixed, name=f"Private-FedLinUCB, {growth:g}-fold rounds", **best),
    ]
    if graph is not None:
        network: dict[str, Any] = dict(graph=fb.networks.make(graph, agents), gamma=gamma, schedule=asked)
        algos += [
            fb.algos.gossip_fed_ucb(**network, regularization=1 / agents, exploration_scale=scale),
            fb.algos.gossip_fed_ucb(**network, budget=budget, exploration_scale=scale),
        ]
    elif gamma != 1:
        raise ValueError(f"gamma must be 1 without a graph, got {gamma}")
    sizes = (agents, arms, dim, gap, exploration_scale, horizon, seeds, seed)
    run_and_save(
        world,
        algos,
        grid={"epsilon": epsilon},
        request=repr((epsilon, delta, threshold, trigger, share, max_syncs, growth, graph, gamma, sizes)),
        out=out,
        name="fed_ucb",
        title=f"gap {gap:g}: M={agents}, K={arms}, d={dim}, ε={'/'.join(map('{:g}'.format, epsilon))}, δ={delta:g}",
        horizon=horizon,
        n_seeds=seeds,
        seed=seed,
    )


def _threshold(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
