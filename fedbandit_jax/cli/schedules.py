"""`fedbandit simulate schedules`: when to synchronise, with a controller or over a network (Dubey & Pentland 2020)."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from fedbandit_jax.cli._run import Comparison, Files, Output, Simulation

Graph = Literal["complete", "ring", "line", "star", "grid", "erdos_renyi", "hierarchical"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SchedulesSimulation(Simulation):
    """Compare schedules of synchronisation on the instance of Dubey & Pentland (2020): adaptive or not, leaky or not.

    FedUCB synchronises when some agent has learned enough, which tells about its users: without noise, and
    with noise on everything but that. Beside it Private-FedLinUCB, certified, which asks the same question by a sparse
    vector test, or synchronises ever more rarely. With --graph also agents who pass messages on, without a controller.
    Prints regrets, paired differences, rounds of communication and certificates; writes OUT/NAME.npz, .json and .png.
    Stopped by Ctrl-C or SIGTERM, the same command continues where it was.

    For example:
      fedbandit simulate schedules
      fedbandit simulate schedules --threshold "M log T" --trigger dp20
      fedbandit simulate schedules --graph ring --gamma 2
      fedbandit simulate schedules --epsilon 1 10 --share 0.3

    Args:
        epsilon: privacy budgets, each > 0.
        delta: in (0, 1).
        threshold: D, a number > 0; or "M log T" or "M^1.5", the paper's for that much communication.
        trigger: zc24 reads log det V_i; dp20, as printed, log det (V_i + M (rho_max - rho_min) I).
        share: of epsilon that the sparse vector tests spend, in (0, 1).
        max_syncs: most synchronisations by sparse vector tests; noise is calibrated for so many.
        growth: factor between rounds of the schedule that is fixed in advance, > 1.
        graph: network of the agents; default: a controller only.
        gamma: hops after which a message is dropped, 1 to the graph's diameter; with --graph.
        agents: M >= 2.
        arms: K, 2 to d^2.
        dim: d.
        gap: between the best arm and the others, in (0, 0.3].
        exploration_scale: factor on the confidence width.
        horizon: T, rounds.
        seeds: independent repetitions, run together.
        random_seed: of the random number generator.
    """

    epsilon: tuple[float, ...] = (1.0,)
    delta: float = 0.1
    threshold: float | Literal["M log T", "M^1.5"] = 20.0
    trigger: Literal["zc24", "dp20"] = "zc24"
    share: float = 0.1
    max_syncs: int = 100
    growth: float = 1.2
    graph: Graph | None = None
    gamma: int = 1
    agents: int = 20
    arms: int = 20
    dim: int = 5
    gap: float = 0.1
    exploration_scale: float = 1.0
    horizon: int = 5_000
    seeds: int = 8
    random_seed: int = 0
    output: Files = dataclasses.field(default_factory=Output)

    def comparison(self) -> Comparison:
        """Four algorithms, and two more with a network."""
        import fedbandit_jax as fb

        self.applies_to("a --graph", self.graph is not None, "gamma")
        budget, *_ = [fb.privacy.Budget(epsilon, self.delta) for epsilon in self.epsilon]
        world = fb.envs.gap(self.agents, self.arms, self.dim, gap=self.gap)
        asked = fb.schedules.LogDet(self.threshold, trigger=self.trigger)
        tested = fb.schedules.PrivateLogDet(self.threshold, share=self.share, max_syncs=self.max_syncs)
        fixed = fb.schedules.Geometric(self.growth, first=1)
        blt, scale = fb.privacy.Mechanism(budget, release="blt"), self.exploration_scale
        sharp = fb.algos.UCB(regularizer="project", confidence="known_noise", exploration_scale=scale)
        noisy = fb.algos.LogDetUCB(exploration_scale=scale)
        exact = fb.algos.LogDetUCB(exploration_scale=scale, regularization=1 / self.agents)
        certified, fold = fb.algos.private_fed_lin_ucb, f"{self.growth:g}-fold rounds"
        algos: list[Any] = [
            fb.algos.fed_ucb(schedule=asked, exploration=exact),
            fb.algos.fed_ucb(budget, schedule=asked, exploration=noisy, name="Private-FedUCB, leaky"),
            certified(blt, schedule=tested, exploration=sharp, name="Private-FedLinUCB, sparse vector"),
            certified(blt, schedule=fixed, exploration=sharp, name=f"Private-FedLinUCB, {fold}"),
        ]
        if self.graph is not None:
            network: dict[str, Any] = dict(graph=fb.networks.make(self.graph, self.agents), gamma=self.gamma)
            algos.append(fb.algos.GossipFedUCB(**network, schedule=asked, exploration=exact))
            algos.append(fb.algos.GossipFedUCB(**network, schedule=asked, exploration=noisy, privacy=budget))
        return Comparison(
            world,
            algos,
            name="schedules",
            title=f"gap {self.gap:g}: M={self.agents}, K={self.arms}, d={self.dim}",
            epsilon=self.epsilon,
            delta=self.delta,
        )
