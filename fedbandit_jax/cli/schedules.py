"""The command `fedbandit simulate schedules`: when to synchronise, and over networks (Dubey & Pentland 2020)."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from typing_extensions import override

from fedbandit_jax.cli._run import Comparison, Files, Output, Simulation

Graph = Literal["complete", "ring", "line", "star", "grid", "erdos_renyi", "hierarchical"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SchedulesSimulation(Simulation):
    """Compare rules that decide when agents synchronise, on the instance of Dubey & Pentland (2020).

    An adaptive schedule synchronises when some agent i has learned enough: when the log-determinant log det V_i of its
    statistics has grown enough since the last synchronisation. That an agent asks tells about its users. The algorithms
    are:
      1. FedUCB with an adaptive schedule, without privacy
      2. the same with noise on all messages; when it synchronises still depends on raw data, so nothing is certified
      3. Private-FedLinUCB, certified: the same question, asked by a private test (the sparse vector technique)
      4. Private-FedLinUCB, certified: ever longer pauses that are fixed in advance

    With --graph, FedUCB also runs over that network, where agents pass messages on and there is no central controller,
    without and with noise. The command prints regrets, paired differences, the number of synchronisations, and
    certificates. It writes OUT/NAME.npz, .png and .pdf. If it is stopped by Ctrl-C or SIGTERM, the same
    command continues where it was.

    For example:
      fedbandit simulate schedules
      fedbandit simulate schedules --threshold "M log T" --trigger dp20
      fedbandit simulate schedules --graph ring --gamma 2
      fedbandit simulate schedules --epsilon 1 10 --share 0.3

    Args:
        epsilon: epsilons of the budgets, each > 0; every private algorithm runs with each of them.
        delta: delta of all budgets, in (0, 1).
        threshold: D > 0: agent i asks if log det V_i has grown by D divided by the number of rounds since the last
            synchronisation. "M log T" and "M^1.5" are the values that the paper has for that much communication.
        trigger: which log-determinant FedUCB compares: zc24 is log det V_i, as Zhou & Chowdhury (2024) restate the
            rule; dp20 is as printed, log det (V_i + M (rho_max - rho_min) I), where rho_min and rho_max bound the
            eigenvalues of an agent's noisy regulariser. With he22 all of them ask if log det V_i has grown by D.
        share: part of epsilon that the private tests spend, in (0, 1).
        max_syncs: most synchronisations that the private tests may trigger; the noise is calibrated for that many.
        growth: factor > 1 by which the number of rounds grows between synchronisations that are fixed in advance.
        graph: network of the agents; by default there is a controller only.
        gamma: number of hops after which a message is dropped, from 1 to the diameter of --graph.
        agents: M >= 2, the number of agents.
        arms: K, the number of arms, from 2 to d^2.
        dim: d, the number of features.
        gap: least difference between the mean rewards of the best arm and of any other, in (0, 0.3].
        exploration_scale: factor on the confidence width.
        horizon: T, the number of rounds.
        seeds: number of independent repetitions, which run together.
        random_seed: seed of the random number generator.
    """

    epsilon: tuple[float, ...] = (1.0,)
    delta: float = 0.1
    threshold: float | Literal["M log T", "M^1.5"] = 20.0
    trigger: Literal["zc24", "dp20", "he22"] = "zc24"
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

    @override
    def comparison(self) -> Comparison:
        import fedbandit_jax as fb

        self.applies_to("a --graph", self.graph is not None, "gamma")
        budget, *_ = [fb.privacy.Budget(epsilon, self.delta) for epsilon in self.epsilon]
        world = fb.envs.gap(self.agents, self.arms, self.dim, gap=self.gap)
        asked = fb.schedules.LogDet(self.threshold, trigger=self.trigger)
        tested = fb.schedules.PrivateLogDet(
            self.threshold, self.share, self.max_syncs, "he22" if self.trigger == "he22" else "zc24"
        )
        fixed = fb.schedules.Geometric(self.growth, first=1)
        blt, scale = fb.privacy.Mechanism(budget, release="blt"), self.exploration_scale
        sharp = fb.algos.UCB(regularizer="project", confidence="known_noise", exploration_scale=scale)
        noisy = fb.algos.LogDetUCB(exploration_scale=scale)
        exact = fb.algos.LogDetUCB(exploration_scale=scale, regularization=1 / self.agents)
        certified, fold = fb.algos.private_fed_lin_ucb, f"{self.growth:g}-fold rounds"
        algos: list[Any] = [
            fb.algos.fed_ucb(schedule=asked, policy=exact),
            fb.algos.fed_ucb(budget, schedule=asked, policy=noisy, name="Private-FedUCB, leaky"),
            certified(blt, schedule=tested, policy=sharp, name="Private-FedLinUCB, sparse vector"),
            certified(blt, schedule=fixed, policy=sharp, name=f"Private-FedLinUCB, {fold}"),
        ]
        if self.graph is not None:
            network: dict[str, Any] = dict(graph=fb.networks.make(self.graph, self.agents), gamma=self.gamma)
            algos.append(fb.algos.GossipFedUCB(**network, schedule=asked, policy=exact))
            algos.append(fb.algos.GossipFedUCB(**network, schedule=asked, policy=noisy, privacy=budget))
        return Comparison(
            world,
            algos,
            name="schedules",
            title=f"gap {self.gap:g}: M={self.agents}, K={self.arms}, d={self.dim}",
            epsilon=self.epsilon,
            delta=self.delta,
        )
