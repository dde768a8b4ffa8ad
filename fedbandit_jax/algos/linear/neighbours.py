"""Federated learning without a server, on released statistics: agents act on what silos within gamma hops released.

It goes beyond the papers. Letters: M agents, d features, S releases; n_i is the number of silos that agent i hears of,
its own included; gamma is the number of hops after which a message is dropped.

Algorithm 3 of Dubey & Pentland (2020) keeps gamma estimators, covers the graph with cliques, and has requests, because
raw data decide when its agents send, and members of a clique must agree on what they share. With a schedule that is
fixed in advance nobody asks, and with agents that act on released statistics only nothing need be shared: every silo
has one stream of releases, and every agent adds up the last ones of all silos it hears of.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from jax import Array

from fedbandit_jax import networks, schedules
from fedbandit_jax.algos.acting import IMPURE, adopt, believe, best_arms, first, policy_doors, proven
from fedbandit_jax.algos.linear.greedy import Greedy
from fedbandit_jax.algos.linear.tracked import REFRESH, Turn, in_turn
from fedbandit_jax.algos.linear.ucb import UCB, BoundUCB, Estimate, Own, bounds, one, optimism, score
from fedbandit_jax.certificate import Certificate, Raw
from fedbandit_jax.core import control, random, ridge, struct, validate
from fedbandit_jax.core.choose import Scorer
from fedbandit_jax.core.programs import call
from fedbandit_jax.interfaces import Algorithm, Law, Recipe, Released, Report, Round, Spec, Status
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.channel import BoundMechanism, Exact
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism, check_norms
from fedbandit_jax.privacy.statistic import LinearStatistic, packed_size
from fedbandit_jax.privacy.trust import find
from fedbandit_jax.schedules import BoundSchedule, Every, Geometric, Setting, doors, timing


class GossipState(NamedTuple):
    """Everything that silos and agents hold between two rounds."""

    mechanism: Any  # `ChannelState` of every silo, leaves (M, ...)
    pending: Array  # (d, d + 1, M) sums of [x x' | x y] since the last release
    sent: Array  # (M, d, d + 1) what every silo released last
    belief: Estimate  # of every agent, from the releases that it has heard of, leaves (M, ...)
    released: Array  # int32: number of releases so far
    heard: Array  # int32: number of releases that have arrived everywhere
    status: Array  # int32 `Status` bits


@struct.sealed
@struct.pytree
class GossipLoop(Algorithm):
    """A bound `Gossip`. A step is one round; all silos release after the same rounds."""

    policy: BoundUCB  # leaves (M, ...)
    mechanism: Exact  # of one silo; all have noise of the same law
    stds: Any  # (S,) standard deviation of the noise of one silo's releases
    schedule: BoundSchedule
    hears: Any  # (M, M) float32, 1 where agent i hears of silo j
    hops: Any  # (M,) int32: transmissions over edges that one broadcast takes
    delay: struct.Number  # gamma - 1, full rounds between a release and the first use of it
    n_syncs: struct.Number  # S
    spec: Spec = struct.static()

    @property
    def raw(self) -> tuple[Raw, ...]:
        """Returns the doors to raw data: there are none unless another policy or schedule was put in after binding."""
        own = not struct.is_sealed(self.policy)
        return (*doors(self.schedule), *policy_doors(self.policy, False, None), *[IMPURE] * own)

    def guarantee(self) -> Certificate:
        """Returns what the noise of one silo proves for its users; nobody is a server, and all see all releases."""
        one_silo = dataclasses.replace(self.spec, n_agents=1)
        found = proven(self.mechanism, timing(self.schedule), None, one_silo)
        if found.epsilon is not None and found.server_noise_std is not None:
            most = math.sqrt(np.asarray(self.hears, float).sum(1).max()) * found.server_noise_std
            whose = f"{found.noise_whose}, at most {most:.6g} in the sums that an agent adds up"
            trust = f"{found.trust} (there is no server: silos send messages to each other)"
            found = dataclasses.replace(found, trust=trust, noise_whose=whose, server_noise_std=None)
        return found.through(self.raw)

    def init(self, key: Array, spec: Spec) -> GossipState:
        """Returns the state before the first round, in which nobody has heard of anything."""
        del key
        m, d = spec.n_agents, spec.dim
        belief, status = jax.vmap(lambda policy: first(policy, d))(self.policy)
        return GossipState(
            mechanism=jax.vmap(lambda _: self.mechanism.init(d))(jnp.arange(m)),
            pending=jnp.zeros((d, d + 1, m)),
            sent=jnp.zeros((m, d, d + 1)),
            belief=belief,
            released=jnp.int32(0),
            heard=jnp.int32(0),
            status=jnp.bitwise_or.reduce(status),
        )

    def act(self, key: Array, t: Array, local: GossipState, offered: Round) -> Array:
        """Returns the arms (M,) that maximise every agent's upper confidence bounds."""
        del key
        own = self._own(t, local)
        return best_arms(bounds(score(own.posterior, offered.contexts), own.width), offered)

    @property
    def scores_alone(self) -> bool:
        """Returns True: arms are scored by their features alone."""
        return True

    def scorer(self, t: Array, local: GossipState) -> Scorer:
        """Returns how an arm is scored by its features alone, as in `act`."""
        return Scorer(optimism, self._own(t, local), one)

    def _own(self, t: Array, local: GossipState) -> Own:
        """Returns what agents know in round t."""
        return Own(ridge.join(local.belief.posterior), local.belief.width(t))

    def learn(
        self, t: Array, local: GossipState, offered: Round, arms: Array, rewards: Array
    ) -> tuple[GossipState, tuple[()]]:
        """Adds each user's row to the sums of her silo, on which nobody acts before they are released."""
        del t
        x, y, outside = self.mechanism.admit(ridge.take(offered.contexts, arms), rewards)
        return local._replace(
            pending=local.pending + x[:, None] * jnp.concatenate([x, y[None]])[None],
            status=local.status | jnp.where(outside.any(), Status.OUTSIDE_SPEC, 0),
        ), ()

    def sync(
        self, key: Array, k: Array, state: GossipState, local: GossipState, records: Any
    ) -> tuple[GossipState, Report]:
        """Has silos release after round k = 0, 1, ..., and agents use what was released gamma - 1 rounds ago."""
        del state, records
        m, d = self.spec.n_agents, self.spec.dim
        due = self._asked(k) & (local.released < self.n_syncs)
        new = control.cond_any(due, lambda state: self._release(key, state), local)
        arrived = self._asked(k - self.delay) & (new.heard < new.released)
        new = control.cond_any(arrived, lambda state: self._hear(k, state), new)
        longest = self.mechanism.longest if isinstance(self.mechanism, BoundMechanism) else REFRESH
        new = in_turn(k, 1, self._refresh, new, longest)
        hops = jnp.asarray(self.hops).sum()
        return new, Report(
            rounds=jnp.where(due, 1, 0),
            floats=jnp.where(due, hops * jnp.float32(packed_size(d)), 0),
            float_bits=32,
            status=new.status,
            counts={"messages": jnp.where(due, m, 0), "hops": jnp.where(due, hops, 0)},
        )

    def view(self, state: GossipState) -> Any:
        """Returns what all silos released last, which everybody may see, and the number of releases."""
        return state.sent, state.released

    def _asked(self, t: Array) -> Array:
        """Returns whether all silos release after round t, of which the schedule was certain in advance."""
        return jnp.all(call(self.schedule, "requests", jax.random.key(0), t, (), None, jnp.int32(1)))

    def _release(self, key: Array, state: GossipState) -> GossipState:
        """Puts the batch of every silo through its mechanism, each with noise of its own."""
        d, m, k = self.spec.dim, self.spec.n_agents, state.released + 1

        def release(key: Array, silo: Any, total: Array) -> tuple[Array, Any]:
            return self.mechanism.step(key, k, silo, total, jnp.zeros((0, d, 1)), jnp.zeros((0, 1)))

        keys = jax.random.split(random.stream(key, "release"), m)
        sent, mechanism = jax.vmap(release)(keys, state.mechanism, jnp.moveaxis(state.pending, 2, 0))
        return state._replace(mechanism=mechanism, pending=jnp.zeros_like(state.pending), sent=sent, released=k)

    def _hear(self, t: Array, state: GossipState) -> GossipState:
        """Gives every agent the sum of the releases that have reached it by the end of round t."""
        hears, k = jnp.asarray(self.hears), state.heard
        total = jnp.einsum("ij,jab->iab", hears, state.sent, precision="highest")
        n = hears.sum(1)
        std = jnp.sqrt(n) * jnp.asarray(self.stds)[k]
        count = n * (t + 1 - self.delay)

        def update(policy: Any, total: Array, count: Array, std: Array, old: Any) -> tuple[Any, Array]:
            return adopt(believe(policy, k, old, Released(total[:, :-1], total[:, -1], count, std)), old)

        belief, ok = jax.vmap(update)(self.policy, total, count, std, state.belief)
        status = state.status | jnp.where(ok.all(), 0, Status.NO_ESTIMATE)
        return state._replace(belief=belief, heard=k + 1, status=status)

    def _refresh(self, state: GossipState, turn: Turn) -> GossipState:
        """Hands pending rows to the silos' mechanisms, whose sums are more than float32."""
        due = jnp.moveaxis(jnp.where(turn.due, state.pending, 0), 2, 0)
        mechanism = jax.vmap(self.mechanism.absorb)(state.mechanism, due)
        return state._replace(mechanism=mechanism, pending=jnp.where(turn.due, 0, state.pending))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gossip(Recipe):
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

    graph: nx.Graph
    gamma: int = 1
    policy: UCB | Greedy = UCB(confidence="known_noise", regularizer="project")
    schedule: Every | Geometric | int = Every(25)
    privacy: Mechanism | Budget | None = None
    name: str = "Gossip"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        networks.network(self.graph, self.gamma)
        validate.instance("policy", self.policy, (UCB, Greedy), "an fb.algos.UCB or an fb.algos.Greedy")
        schedule, privacy = schedules.as_schedule(self.schedule), as_mechanism(self.privacy)
        validate.instance("schedule", schedule, (Every, Geometric), "fb.schedules.Every or Geometric")
        object.__setattr__(self, "schedule", schedule)
        object.__setattr__(self, "privacy", privacy)
        if privacy is not None and not find(privacy.trust).per_silo:
            raise ValueError(
                f"trust must be 'silo_local' or 'silo_local_matrix' where there is no server, got {privacy.trust!r}"
            )
        if privacy is not None and len(privacy.budgets) > 1:
            raise ValueError(f"budget must be one fb.privacy.Budget for all silos, got {len(privacy.budgets)}")
        validate.text("name", self.name)

    def bind(self, spec: Spec, horizon: int) -> GossipLoop:
        """Calibrates the noise of a silo, and tells the policy of every agent the law of what it will hear."""
        schedule, privacy, m = schedules.as_schedule(self.schedule), as_mechanism(self.privacy), spec.n_agents
        if len(self.graph) != m:
            raise ValueError(f"graph must have one node for each of {m} agents, got {len(self.graph)} nodes")
        network, n_syncs = networks.network(self.graph, self.gamma), schedule.n_syncs(horizon)
        shortest = _shortest(schedule, horizon)
        if shortest < self.gamma:
            raise ValueError(
                f"schedule must leave gamma = {self.gamma} rounds or more between two releases, got {schedule!r}, "
                f"which leaves {shortest}"
            )
        mechanism, stds = Exact(n_agents=1), np.zeros(n_syncs)
        if privacy is not None:
            check_norms(self.name, spec.max_norm)
            statistic, longest = LinearStatistic.of(spec), min(horizon, REFRESH)
            mechanism = privacy.bind(statistic, n_agents=1, n_syncs=n_syncs, longest=longest)
            stds = mechanism.stds()
        hears = network.distances <= self.gamma
        sizes = hears.sum(1)
        law = copy.deepcopy(jax.tree.map(np.array, mechanism))
        of_size = {n: self.policy.bind(Law(int(n), spec.dim, stds * math.sqrt(n), law)) for n in sorted(set(sizes))}
        return GossipLoop(
            policy=jax.tree.map(lambda *x: np.stack(x).astype(np.float32), *(of_size[n] for n in sizes)),
            mechanism=mechanism,
            stds=stds.astype(np.float32) if isinstance(mechanism, BoundMechanism) else np.zeros(1, np.float32),
            schedule=schedule.bind(Setting(m, spec.dim, horizon, 1.0, 1.0)),
            hears=hears.astype(np.float32),
            hops=np.asarray(network.hops, np.int32),
            delay=np.int32(self.gamma - 1),
            n_syncs=n_syncs,
            spec=spec,
        )


def _shortest(schedule: Any, horizon: int) -> int:
    """Returns the fewest rounds between two releases; before the first any number will do."""
    if isinstance(schedule, Every):
        return schedule.batch
    return int(np.diff(schedule.rounds(horizon)).min(initial=2**31 - 1))
