"""Federated learning without a server: on released statistics (ours), and Algorithm 3 of Dubey & Pentland (2020)."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from typing_extensions import override

from fedbandit_jax import networks
from fedbandit_jax.algos.loops.cliques import CliqueLoop
from fedbandit_jax.algos.loops.gossip import GossipLoop
from fedbandit_jax.algos.loops.own_rows import REFRESH
from fedbandit_jax.algos.policies.log_det_ucb import LogDetUCB
from fedbandit_jax.algos.policies.ucb import UCB
from fedbandit_jax.algos.recipe import PolicyRecipe, parts
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.interfaces import NoiseLaw, Policy, Spec
from fedbandit_jax.networks import Network
from fedbandit_jax.privacy.mechanism import as_mechanism
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.schedules import Every, Geometric, LogDet


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkRecipe(PolicyRecipe):
    """Base class of recipes for agents on a network, without a server.

    Args:
        graph: connected `networkx.Graph` on nodes 0..M-1, for instance `fb.networks.make("ring", 20)`, or one without
            any edge.
        gamma: hops after which a message is dropped, 1 to the graph's diameter.

    Raises:
        ValueError: when bound, also if the graph has another number of nodes than there are agents.
    """

    graph: nx.Graph
    gamma: int = 1

    def __post_init__(self):
        networks.network(self.graph, self.gamma)
        super().__post_init__()

    def network(self, spec: Spec) -> Network:
        """Returns the network of an environment's agents."""
        if len(self.graph) != spec.n_agents:
            must = f"must have one node for each of {spec.n_agents} agents"
            raise BadValue("graph", must, len(self.graph), got=f"{len(self.graph)} nodes")
        return networks.network(self.graph, self.gamma)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gossip(NetworkRecipe):
    """A policy that acts on the releases of silos on a network, without a server; certified with noise.

    After the rounds of the schedule every silo releases its own sums of x x' and x y with its own noise. A release
    travels one hop a round and is dropped after gamma hops. Agent i acts on the sum of the last releases of the n_i
    silos at most gamma hops away, its own included. It uses releases of round t from round t + gamma on. Between
    releases agents learn nothing, not even from their own users.

    Trust is silo-local: users trust their silo, and all other silos see its messages. The privacy unit, adjacency and
    sensitivity are those of `privacy`, see `fb.privacy.Mechanism`. The guarantee is that of one silo's mechanism, for
    any graph. Agent i acts on sqrt n_i times the noise of one silo.

    `Result.counts` has the messages (broadcasts) and the hops (transmissions between neighbours).

    Args:
        graph, gamma: as in `NetworkRecipe`.
        policy: an `fb.Policy`; agent i's policy gets n_i as M.
        schedule: `fb.schedules.Every`, `fb.schedules.Geometric`, or a number of rounds, with at least gamma rounds
            between two releases.
        privacy: a budget or an `fb.privacy.Mechanism` with trust "silo_local" or "silo_local_matrix"; None: no noise.

    Raises:
        ValueError: when bound, also if releases follow each other too fast.
    """

    title, said = "Gossip", ("recipe of single senders",)
    policy: Policy = UCB(confidence="known_noise", regularizer="project")
    schedule: Every | Geometric | int = Every(25)

    def __post_init__(self):
        super().__post_init__()
        validate.instance("schedule", self.schedule, (Every, Geometric), "fb.schedules.Every or Geometric")

    @override
    def bind(self, spec: Spec, horizon: int) -> GossipLoop:
        (schedule, _), network = self.normalised, self.network(spec)
        assert isinstance(schedule, (Every, Geometric))
        times = [0, schedule.batch] if isinstance(schedule, Every) else schedule.rounds(horizon)
        shortest = int(np.diff(times).min(initial=2**31 - 1))
        if shortest < self.gamma:
            must = f"must leave gamma = {self.gamma} rounds or more between two releases"
            raise BadValue("schedule", must, schedule, got=f"{schedule!r}, which leaves {shortest}")
        bound, _ = self.scheduled(spec, horizon, spec.n_agents)
        mechanism, stds = self.calibrated(spec, 1, self.n_syncs(horizon), longest=REFRESH)
        hears = network.distances <= self.gamma
        sizes = hears.sum(1)
        of_size = {n: self.informed(spec, mechanism, int(n), stds * math.sqrt(n)) for n in sorted(set(sizes))}
        policies = jax.tree.map(lambda *x: np.stack(x).astype(jnp.result_type(x[0])), *(of_size[n] for n in sizes))
        return GossipLoop(
            **parts(spec, policies, mechanism, stds),
            schedule=bound,
            hears=hears.astype(np.float32),
            hops=np.asarray(network.hops, np.int32),
            delay=np.int32(self.gamma - 1),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GossipFedUCB(NetworkRecipe):
    """FedUCB without a controller: agents synchronise with their clique of the power graph, by messages of few hops.

    A message travels one hop a round and is dropped after gamma hops. Each agent keeps gamma estimators and uses them
    in turn. So a message arrives before the next use of its estimator. The power graph has edges between agents at most
    gamma hops apart. A clique cover of it decides who answers whom. Agents ignore requests and sums of other cliques.

    `Result.counts` has the messages (broadcasts of requests and sums) and the hops (transmissions between neighbours).
    Trust, privacy unit and sensitivity are those of `fed_ucb`, with one tree per estimator. It is not private with any
    noise, because raw statistics decide when it synchronises. `Gossip` is certified.

    Args:
        graph, gamma: as in `NetworkRecipe`; gamma is also the number of estimators.
        privacy: a budget (then PRIVATIZER, as in `fed_ucb`) or an `fb.privacy.Mechanism` with trust "silo_local_matrix"
            or "silo_local"; None: no noise.
        policy: width and spectral bounds, as in `fed_ucb`.
        schedule: `fb.schedules.LogDet(threshold, trigger)`, with D divided by 1 + L^2 = 2 (line 6), for features of
            norm at most L = 1. T is the number of uses of an estimator, ceil(T / gamma).

    Reference: Dubey & Pentland (2020), Section 4.2, Algorithm 3, Theorem 2 and Remark 5.
    """

    said = ("cliques of agents",)

    policy: LogDetUCB = LogDetUCB()
    schedule: LogDet = LogDet()

    def __post_init__(self):
        validate.instance("policy", self.policy, LogDetUCB, "an fb.algos.LogDetUCB")
        validate.instance("schedule", self.schedule, LogDet, "an fb.schedules.LogDet")
        object.__setattr__(self, "privacy", as_mechanism(self.privacy, trust="silo_local_matrix"))
        super().__post_init__()

    @property
    @override
    def label(self) -> str:
        return "Gossip-FedUCB" if self.privacy is None else "Private-Gossip-FedUCB"

    @override
    def bind(self, spec: Spec, horizon: int) -> CliqueLoop:
        # A user enters one estimator, with a tree over at most ceil(T / gamma) uses.
        m, d, uses = spec.n_agents, spec.dim, -(-horizon // self.gamma)
        if m < 2:
            raise BadValue("n_agents", f"must be at least two for {self.name} (Definition 1)", m)
        network = self.network(spec)
        sizes = np.asarray(network.sizes, float)
        mechanism, _ = self.calibrated(spec, 1, uses)
        of_silo = self.policy.bounds(NoiseLaw(m, d, np.zeros(0), mechanism), horizon)
        low, high, _ = of_silo
        if isinstance(mechanism, NoisyMechanism):
            std = np.sqrt(sizes[:, None]) * np.float32(mechanism.trust.std[0])  # pyright: ignore
            std = np.nextafter(std.astype(np.float32), np.float32(np.inf))
            mechanism = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(sizes), *np.shape(leaf))), mechanism)
            mechanism = dataclasses.replace(mechanism, trust=dataclasses.replace(mechanism.trust, std=std))
        bound, shift = self.scheduled(spec, uses, m, rho=(low, high))
        return CliqueLoop(
            policy=self.policy.of_groups(of_silo, sizes, sizes[network.clique], d),
            mechanism=mechanism,
            sizes=sizes,
            # One more row enters between a request and the sums sent: hence D / (1 + L^2), L = 1 (Algorithm 3, line 6).
            schedule=dataclasses.replace(bound, threshold=bound.threshold / np.float32(2)),  # pyright: ignore
            shift=(sizes * (shift / m)).astype(np.float32) if shift > 0 else None,
            clique=np.asarray(network.clique, np.int32),
            hops=np.asarray(network.hops, np.int32),
            spec=spec,
            horizon=horizon,
            batch=self.gamma,
        )
