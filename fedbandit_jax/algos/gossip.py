"""Federated learning without a server, on released statistics: agents act on what silos within gamma hops released.

It goes beyond the papers. Letters: M agents, d features, S releases; n_i is the number of silos that agent i hears of,
its own included; gamma is the number of hops after which a message is dropped.

Algorithm 3 of Dubey & Pentland (2020) keeps gamma estimators, covers the graph with cliques, and has requests, because
raw data decide when its agents send, and members of a clique must agree on what they share. With a schedule that is
fixed in advance nobody asks, and with agents that act on released statistics only nothing need be shared: every silo
has one stream of releases, and every agent adds up the last ones of all silos it hears of.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from typing_extensions import override

from fedbandit_jax.algos.loops.gossip import GossipLoop
from fedbandit_jax.algos.loops.own_rows import REFRESH
from fedbandit_jax.algos.policies.greedy import Greedy
from fedbandit_jax.algos.policies.ucb import UCB
from fedbandit_jax.algos.recipe import NetworkRecipe, parts
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.schedules import Every, Geometric, Setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gossip(NetworkRecipe):
    """A policy that acts on what silos on a network release to each other, without a server; certified with noise.

    After the rounds of a schedule that is fixed in advance every silo releases its own sums of x x' and x y with its
    own noise. A release travels one hop a round and is dropped after gamma hops. Agent i acts on the sum of the last
    releases of all n_i silos at most gamma hops away, its own included, from round t + gamma on if they were sent after
    round t. Between releases agents learn nothing, not even from their own users.

    Trust is silo-local: a user trusts her silo, and all other silos may see all that it sends. The privacy unit,
    adjacency and sensitivity are those of `privacy`, see `fb.privacy.Mechanism`. A user is in one batch of one silo's
    stream of releases, and all that others do is computed from released statistics and from what their own users are
    offered. So the guarantee is that of one silo's mechanism, whatever the graph. The noise that agent i acts on has
    sqrt n_i times the standard deviation of one silo's.

    `Result.counts` has the messages (broadcasts) and the hops (transmissions from neighbour to neighbour).

    Args:
        graph: connected `networkx.Graph` on nodes 0..M-1, for instance `fb.networks.make("ring", 20)`, or one without
            any edge.
        gamma: hops after which a message is dropped, 1 to the graph's diameter.
        policy: `fb.algos.UCB` or `fb.algos.Greedy`; it is told n_i in place of M.
        schedule: `fb.schedules.Every`, `fb.schedules.Geometric`, or a number of rounds; with at least gamma rounds
            between two releases, so that one has arrived before the next is sent.
        privacy: a budget or an `fb.privacy.Mechanism` with trust "silo_local" or "silo_local_matrix"; None: no noise.
        name: label in results.

    Raises:
        ValueError, TypeError: if an argument is not one of these; the message names it and its value. When bound to an
            environment, also if the graph has another number of nodes than there are agents, releases follow each other
            too fast, or the noise cannot be calibrated.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=6, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.Gossip(
        ...     graph=fb.networks.make("ring", 6),
        ...     gamma=2,
        ...     policy=fb.algos.Greedy(),
        ...     schedule=fb.schedules.Geometric(1.5, first=10),
        ...     privacy=fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt"),
        ... )
        >>> algo.certificate(env.spec, horizon=100).claim
        'certified'
    """

    by_itself = "as there is no server"
    policies = (UCB, Greedy), "an fb.algos.UCB or an fb.algos.Greedy"

    policy: UCB | Greedy = UCB(confidence="known_noise", regularizer="project")
    schedule: Every | Geometric | int = Every(25)

    def __post_init__(self):
        super().__post_init__()
        validate.instance("schedule", self.schedule, (Every, Geometric), "fb.schedules.Every or Geometric")

    @property
    @override
    def label(self) -> str:
        return "Gossip"

    @override
    def bind(self, spec: Spec, horizon: int) -> GossipLoop:
        (schedule, _), network, m = self.normalised, self.network(spec), spec.n_agents
        shortest = _shortest(schedule, horizon)
        if shortest < self.gamma:
            raise ValueError(
                f"schedule must leave gamma = {self.gamma} rounds or more between two releases, got {schedule!r}, "
                f"which leaves {shortest}"
            )
        mechanism, stds = self.calibrated(spec, 1, self.n_syncs(horizon), longest=min(horizon, REFRESH))
        hears = network.distances <= self.gamma
        sizes = hears.sum(1)
        of_size = {n: self.informed(spec, mechanism, int(n), stds * math.sqrt(n)) for n in sorted(set(sizes))}
        policies = jax.tree.map(lambda *x: np.stack(x).astype(np.float32), *(of_size[n] for n in sizes))
        return GossipLoop(
            **parts(spec, policies, mechanism, stds),
            schedule=schedule.bind(Setting(m, spec.dim, horizon, 1.0, 1.0)),
            hears=hears.astype(np.float32),
            hops=np.asarray(network.hops, np.int32),
            delay=np.int32(self.gamma - 1),
        )


def _shortest(schedule: Any, horizon: int) -> int:
    """The fewest rounds between two releases; before the first any number will do."""
    if isinstance(schedule, Every):
        return schedule.batch
    return int(np.diff(schedule.rounds(horizon)).min(initial=2**31 - 1))
