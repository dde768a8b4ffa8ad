"""FedUCB without a controller: agents on a network pass messages on. Algorithm 3 of Dubey & Pentland (2020)."""

from __future__ import annotations

import dataclasses

import networkx as nx
import numpy as np

from fedbandit_jax import networks
from fedbandit_jax.algos.linear import _privatizer
from fedbandit_jax.algos.linear._certify import certify
from fedbandit_jax.algos.linear._gossip import BoundGossip
from fedbandit_jax.algos.linear._privatizer import Recipe
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.interfaces import Spec
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.channel import Aggregated, Exact
from fedbandit_jax.privacy.trust.calibration import Calibration
from fedbandit_jax.schedules import LogDet, Setting, logdet


@dataclasses.dataclass(frozen=True, kw_only=True)
class GossipFedUCB(Recipe):
    """See `gossip_fed_ucb`."""

    schedule: LogDet
    graph: nx.Graph
    gamma: int

    def calibrate(self, spec: Spec, horizon: int) -> tuple[Calibration, ...]:
        """Noise of every silo; a user enters one estimator, whose tree is over its at most ceil(T / gamma) uses."""
        self.check(spec)
        if len(self.graph) != spec.n_agents:
            raise ValueError(
                f"graph must have one node for each of {spec.n_agents} agents, got {len(self.graph)} nodes"
            )
        return self.noise(-(-horizon // self.gamma), spec.n_agents)

    def bind(self, spec: Spec, horizon: int) -> BoundGossip:
        """Calibrate the noise, cover the graph with cliques, then rho_min, rho_max, kappa and D."""
        noises = self.calibrate(spec, horizon)
        network = networks.network(self.graph, self.gamma)
        uses, m, d = -(-horizon // self.gamma), spec.n_agents, spec.dim
        of_silo = self.bounds(noises, horizon, d, m)
        low, high, _ = of_silo
        sizes = np.asarray(network.sizes, float)
        channel = Exact(n_agents=1)
        if noises:
            (noise,) = noises
            std = np.sqrt(sizes[:, None]) * np.float32(noise.protocol.std[0])  # pyright: ignore[reportAttributeAccessIssue]
            protocol = type(noise.protocol)(std=_up(std))  # pyright: ignore[reportCallIssue]
            channel = Aggregated(n_agents=1, protocol=protocol, release=releases.make(self.release, uses))
        setting = Setting(m, d, uses, low, high)
        schedule = self.schedule.bind(setting)
        shift = self.schedule.shift(setting) / m
        return BoundGossip(
            first_regularization=(sizes * low).astype(np.float32),
            regularization=(sizes * (low + high) / 2).astype(np.float32),
            width=self.width(of_silo, sizes[network.clique], d),
            channel=channel,
            # A row more enters between request and snapshot: D / (1 + L^2), L = 1 (Algorithm 3, line 6).
            schedule=dataclasses.replace(schedule, threshold=schedule.threshold / np.float32(2)),
            shift=(sizes * shift).astype(np.float32),
            clique=np.asarray(network.clique, np.int32),
            hops=np.asarray(network.hops, np.int32),
            spec=spec,
            horizon=horizon,
            batch=self.gamma,
            n_cliques=len(sizes),
            clip_rewards=self.budget is not None and self.clip_rewards,
            shifts=shift > 0,
        )

    def certificate(self, spec: Spec, horizon: int) -> Certificate:
        """What this run proves: the schedule leaks."""
        if self.budget is None:
            return no_privacy("not a private algorithm: no noise is added")
        noises = self.calibrate(spec, horizon)
        return certify(
            noises, noises[0].protocol, spec, lazy=False, clip_rewards=self.clip_rewards, schedule=self.schedule
        )


def _up(std: np.ndarray) -> np.ndarray:
    """float32, none smaller."""
    return np.nextafter(std.astype(np.float32), np.float32(np.inf))


def gossip_fed_ucb(
    graph: nx.Graph,
    gamma: int = 1,
    budget: Budget | None = None,
    *,
    schedule: LogDet | None = None,
    calibration: str = "tight",
    release: str = "prefix_tree",
    spectral: str = "quantile",
    visits: int = 1,
    clip_rewards: bool = True,
    regularization: float = 1.0,
    alpha: float = 0.01,
    subgaussian: float = 0.5,
    theta_norm: float = 1.0,
    exploration_scale: float = 1.0,
    name: str | None = None,
) -> GossipFedUCB:
    """FedUCB without a controller: agents synchronise with their clique of the power graph, by messages of few hops.

    A message travels one hop a round and is dropped after gamma hops. Each agent keeps gamma estimators and uses them
    in turn, so that a request raised at one use has reached everybody at a distance of at most gamma before the next,
    and the private sums that they answer with before the one after that. A clique cover of the power graph (edges
    between agents at most gamma apart) says who answers whom; requests and sums of others are passed on and ignored.

    `Result.counts` has the messages (broadcasts: requests and sums) and the hops (transmissions from neighbour to
    neighbour). Trust: silo-local. Not private, whatever its noise: when it synchronises depends on raw statistics.

    Args:
        graph: connected `networkx.Graph` on nodes 0..M-1, for instance `fb.networks.make("ring", 20)`, or one without
            any edge.
        gamma: time to live of a message in hops, 1 to the diameter; also the number of estimators.
        budget: `fb.privacy.Budget(epsilon, delta, adjacency)`; None: no noise.
        schedule: `fb.schedules.logdet(threshold, trigger)`, whose D is divided by 1 + L^2 = 2 (line 6); T is the number
            of uses of an estimator, ceil(T / gamma).
        calibration, release, spectral, visits, clip_rewards, regularization, alpha, subgaussian, theta_norm,
            exploration_scale, name: as in `fed_ucb`.

    Raises:
        ValueError, TypeError: naming the argument and its value; when bound to an environment, also if the graph has
            another number of nodes than there are agents.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=6, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.gossip_fed_ucb(fb.networks.make("ring", 6), gamma=2, schedule=fb.schedules.logdet(5.0))
        >>> result = fb.simulate(env, algo, horizon=100, key=jax.random.key(0), n_seeds=2)
        >>> sorted(result.counts)
        ['hops', 'messages']

    Reference: Dubey & Pentland (2020), Section 4.2, Algorithm 3, Theorem 2 and Remark 5.
    """
    schedule = logdet() if schedule is None else schedule
    if not isinstance(schedule, LogDet):
        raise TypeError(
            f"schedule must be fb.schedules.logdet(...), agents without a controller have no other, got {schedule!r}"
        )
    if schedule.max_syncs is not None:
        raise ValueError(f"schedule must have max_syncs=None, nobody counts all synchronisations, got {schedule!r}")
    networks.network(graph, gamma)
    if name is None:
        name = "Gossip-FedUCB" if budget is None else "Private-Gossip-FedUCB"
    return GossipFedUCB(**_privatizer.checked(locals()), graph=graph, gamma=int(gamma))


GossipFedUCB.factory = gossip_fed_ucb
