"""Federated LinUCB: Algorithms 1 and 8 of Zhou & Chowdhury (2024), for any policy, schedule and private mechanism.

Letters: M agents, d features, B rounds in a batch, S synchronisations; W = sum x x' and U = sum x y over the users of
all batches that were synchronised.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedbandit_jax import schedules
from fedbandit_jax.algos.acting import adopt, believe, best_arms, check_policy, first, policy_doors, proven
from fedbandit_jax.algos.linear.scheduled import ScheduledLoop
from fedbandit_jax.algos.linear.tracked import REFRESH
from fedbandit_jax.algos.linear.ucb import UCB
from fedbandit_jax.certificate import Certificate, Raw
from fedbandit_jax.core import ridge, struct, validate
from fedbandit_jax.core.choose import Scorer
from fedbandit_jax.interfaces import Algorithm, Law, Policy, Recipe, Released, Report, Round, Spec, Status
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.channel import ChannelState, Exact, Timing, rows
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism, check_norms
from fedbandit_jax.privacy.statistic import LinearStatistic, packed_size
from fedbandit_jax.privacy.sums import USERS
from fedbandit_jax.privacy.trust import check_schedule, find
from fedbandit_jax.schedules import Every, LogDet, Schedule, Setting


class ServerState(NamedTuple):
    """What the server holds between synchronisations."""

    mechanism: ChannelState  # exact sums and the noise that was drawn
    belief: Any  # the policy's belief, from what was released
    status: Array  # () int32 `Status` bits


class BatchRecord(NamedTuple):
    """What the agents remember of a round until the batch ends."""

    x: Array  # (d, M) features of the arms played, as the mechanism admits them
    y: Array  # (M,) rewards, as the mechanism admits them
    outside: Array  # (M,) bool: which users broke what the environment promises


class BatchSums(NamedTuple):
    """What a synchronisation needs of a batch: of the records of several groups of agents it is the sum."""

    rows: Array  # (d, d + 1) sum of [x x' | x y] over users
    users: tuple[Array, Array]  # their x (B, d, M) and y (B, M) if the mechanism needs single users, else with B = 0
    outside: Array  # () int32: how many users broke what the environment promises


@struct.sealed
@struct.pytree
class BatchLoop(Algorithm):
    """Federated learning with a fixed batch, for a known environment and horizon; private if its mechanism is."""

    policy: Policy
    mechanism: Exact
    stds: Any  # (S,) standard deviation of the noise of every release, `Released.std`; (1,) if all are alike
    spec: Spec = struct.static()
    batch: int = struct.static()  # B
    n_syncs: Any  # S, a number
    learns_in_batch: bool = struct.static()

    @property
    def raw(self) -> tuple[Raw, ...]:
        """Returns the doors to raw data: learning inside a batch, and a policy that scores several users at once.

        Nobody acts on what was learned inside a batch of one round: `sync` drops it, and the next batch downloads what
        was released.
        """
        return policy_doors(self.policy, self.learns_in_batch, self.batch)

    def guarantee(self) -> Certificate:
        """Returns what the mechanism proves, weakened by the doors in `raw`."""
        timing = Timing("fixed in advance, so it tells nothing about users")
        return proven(self.mechanism, timing, self.batch, self.spec).through(self.raw)

    def init(self, key: Array, spec: Spec) -> ServerState:
        """Returns the state before the first round: W = 0, U = 0, and what the policy believes of no data."""
        del key
        return ServerState(self.mechanism.init(spec.dim), *first(self.policy, spec.dim))

    def download(self, state: ServerState, offered: Round) -> Any:
        """Returns the server's belief, ready for scoring; agents that learn inside the batch get a copy each."""
        prepare = self.policy.prepare_raw if self.learns_in_batch else self.policy.prepare
        return prepare(state.belief, offered, self.spec.fixed_contexts)

    def act(self, key: Array, t: Array, local: Any, offered: Round) -> Array:
        """Returns the arms of the largest indices, (M,), as in Algorithm 1, line 6."""
        return best_arms(self.policy.indices(key, t, local, offered), offered)

    def learn(self, t: Array, local: Any, offered: Round, arms: Array, rewards: Array) -> tuple[Any, BatchRecord]:
        """Records what enters the sums: features x (d, M) and rewards y (M,), which the mechanism bounds first.

        Without `learns_in_batch` nothing is learned yet (Algorithm 8, lines 5 and 8); with it, each agent updates its
        estimate by its own raw row (Algorithm 1, line 7), which is the door `LEARNS_IN_BATCH`.
        """
        del t
        record = BatchRecord(*self.mechanism.admit(ridge.take(offered.contexts, arms), rewards))
        if self.learns_in_batch:
            local = self.policy.learn(local, offered, record.x, record.y)
        return local, record

    @property
    def adds(self) -> bool:
        """Returns whether agents can be played one group after another, unless single users are needed."""
        return not self.mechanism.needs_users

    @property
    def scores_alone(self) -> bool:
        """Returns whether the policy scores arms by their features alone."""
        return struct.is_sealed(self.policy) and self.policy.scores_alone

    def scorer(self, t: Array, local: Any) -> Scorer:
        """Returns how the policy scores an arm by its features alone, as in `act`."""
        return self.policy.scorer(t, local)

    def gather(self, records: BatchRecord) -> BatchSums:
        """Returns the sums of what some agents remember of the rounds of a batch, (B, ...)."""
        x, y, outside = records
        total = jnp.einsum("bim,bjm->ij", x, rows(x, y), precision="highest")
        users = (x, y) if self.mechanism.needs_users else (x[:0], y[:0])
        return BatchSums(total, users, outside.sum(dtype=jnp.int32))

    def sync(
        self, key: Array, k: Array, state: ServerState, local: Any, records: BatchSums
    ) -> tuple[ServerState, Report]:
        """Puts the batch through the mechanism and shows the policy what is released (Algorithm 1, lines 9-18).

        The mechanism adds the noise; its trust model says who draws it. After an incomplete last batch nothing is
        released.
        """
        del local
        d, m = self.spec.dim, self.spec.n_agents
        statistics, sent = self.mechanism.step(key, k + 1, state.mechanism, records.rows, *records.users)
        count = jnp.float32(m * self.batch) * (k + 1)
        std = jnp.asarray(self.stds)[k]
        fresh = believe(self.policy, k, state.belief, Released(statistics[:, :-1], statistics[:, -1], count, std))
        belief, ok = adopt(fresh, state.belief)
        happens = k < self.n_syncs  # nothing is released after an incomplete batch
        status = state.status | jnp.where(ok, 0, Status.NO_ESTIMATE)
        synced = ServerState(sent, belief, status)
        synced = jax.tree.map(lambda new, old: jnp.where(happens, new, old), synced, state)
        up, bits = self.mechanism.uplink(k + 1, d)
        report = Report(
            rounds=jnp.where(happens, 1, 0),
            floats=jnp.where(happens, jnp.stack([jnp.asarray(up, jnp.float32), jnp.float32(m * packed_size(d))]), 0),
            float_bits=jnp.stack([jnp.asarray(bits, jnp.float32), jnp.float32(32)]),
            status=synced.status | jnp.where(records.outside > 0, Status.OUTSIDE_SPEC, 0),
        )
        return synced, report

    def view(self, state: ServerState) -> Any:
        """Returns what the server was shown, or itself showed to the silos, at the last synchronisation."""
        return state.mechanism.view


@dataclasses.dataclass(frozen=True, kw_only=True)
class Federated(Recipe):
    """A policy that acts on what a private mechanism releases, at synchronisations that a schedule decides about.

    Released are the sums of x x' and x y over the users of all silos. Who adds the noise and who is trusted, adjacency,
    privacy unit and sensitivity are those of `privacy`, see `fb.privacy.Mechanism`; the certificate of a run states
    them.

    Args:
        policy: an `fb.Policy`, for instance `fb.algos.UCB()`, `fb.algos.Thompson()` or one of your own.
        schedule: one of `fb.schedules`, or B, rounds between synchronisations. If B does not divide the horizon T, the
            last T mod B rounds are played without a final synchronisation. With a private mechanism, schedules other
            than `Every` need trust "silo_local", "silo_local_matrix" or "central": `Geometric`, which also goes with
            "secagg", needs fewer releases; `PrivateLogDet` adapts and pays for it from the budget; `LogDet` adapts and
            leaks (claim `none`).
        privacy: an `fb.privacy.Mechanism`, or a budget for one with its defaults; None: no privacy.
        learns_in_batch: False: agents act on released statistics only (Algorithm 8). True: they also learn from their
            raw rewards inside the batch (Algorithm 1 as printed). Then replacing one user changes later actions of the
            batch, and so its sum, by far more than the theorem assumes, and the certificate claims only `as_printed`,
            unless the batch is of one round (schedule=1), where both are the same.
        name: label in results; default: the name of the policy's class.

    Raises:
        ValueError, TypeError: if an argument is not one of these; the message names it and its value. When bound to an
            environment, also if the noise cannot be calibrated or, with noise, feature vectors may be longer than 1.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), release="blt", trust="secagg")
        >>> algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=10, privacy=mechanism)
        >>> certificate = algo.certificate(env.spec, horizon=50)
        >>> certificate.claim, round(certificate.epsilon_exact, 3)
        ('certified', 1.0)

    Reference: Zhou & Chowdhury (2024), Algorithms 1 and 8.
    """

    policy: Policy = UCB()
    schedule: Schedule | int = Every(25)
    privacy: Mechanism | Budget | None = None
    learns_in_batch: bool = False
    name: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self):
        validate.instance("policy", self.policy, Policy, "an fb.Policy")
        schedule, privacy = schedules.as_schedule(self.schedule), as_mechanism(self.privacy)
        object.__setattr__(self, "schedule", schedule)
        object.__setattr__(self, "privacy", privacy)
        validate.boolean("learns_in_batch", self.learns_in_batch)
        if privacy is None and np.max(schedule.pure(1.0)) > 0:
            raise ValueError(f"schedule must spend no budget without privacy, got {schedule!r}")
        if privacy is not None and not isinstance(schedule, Every):
            check_schedule(privacy.trust, fixed=schedule.longest(1) is not None)
        if privacy is not None and self.learns_in_batch and find(privacy.trust).hides_users:
            raise ValueError(
                f"learns_in_batch must be False with trust={privacy.trust!r}: a silo sees no raw statistics it could "
                "learn from, got True"
            )
        if isinstance(self.policy, UCB) and isinstance(schedule, LogDet) and schedule.trigger == "dp20":
            raise ValueError(
                f"schedule must not have trigger 'dp20', which needs LogDetUCB's rho_max, got {schedule!r}"
            )
        if self.learns_in_batch and isinstance(schedule, Every) and schedule.batch > REFRESH:
            raise ValueError(f"schedule must be <= {REFRESH} where agents learn in a batch, got {schedule.batch}")
        name = type(self.policy).__name__ if self.name is None else self.name
        object.__setattr__(self, "name", validate.text("name", name))

    def bind(self, spec: Spec, horizon: int) -> BatchLoop | ScheduledLoop:
        """Calibrates the mechanism for this environment and horizon, then tells the policy the law of its noise."""
        schedule, privacy, m = schedules.as_schedule(self.schedule), as_mechanism(self.privacy), spec.n_agents
        batch = schedule.batch if isinstance(schedule, Every) else None
        n_syncs = validate.integer(f"{type(schedule).__name__}.n_syncs", schedule.n_syncs(horizon), at_least=0)
        mechanism, stds, shares = Exact(n_agents=m), np.zeros(n_syncs), None
        if privacy is not None:
            check_norms(str(self.name), spec.max_norm)
            shares = privacy.shares()
            mechanism = privacy.bind(
                LinearStatistic.of(spec),
                n_agents=m,
                n_syncs=n_syncs,
                batch=batch,
                most=schedule.longest(horizon),
                longest=min(horizon, REFRESH, max(1, USERS // m)),
                pure=schedule.pure(shares),
            )
            stds = mechanism.stds()
        policy = self.policy.bind(Law(m, spec.dim, stds, copy.deepcopy(jax.tree.map(np.array, mechanism))))
        check_policy(policy, spec)
        common: dict[str, Any] = dict(
            policy=policy,
            mechanism=mechanism,
            stds=stds.astype(np.float32) if privacy is not None and n_syncs else np.zeros(1, np.float32),
            spec=spec,
            n_syncs=n_syncs,
            learns_in_batch=self.learns_in_batch,
        )
        if batch is not None:
            return BatchLoop(**common, batch=batch)
        low, high = policy.rho if policy.keeps_matrix else (1.0, 1.0)  # pyright: ignore
        setting = Setting(m, spec.dim, horizon, low, high, shares)
        shift, chosen = schedule.shift(setting), schedule.bind(setting)
        schedules.check(chosen, m)
        if not policy.keeps_matrix and (self.learns_in_batch or chosen.reads != "nothing"):
            raise ValueError(
                f"policy must keep a matrix, as fb.algos.UCB does, for agents that learn in a batch or a schedule that "
                f"reads what they have learned, got {type(self.policy).__name__}"
            )
        return ScheduledLoop(**common, schedule=chosen, shift=np.float32(shift), shifts=shift > 0)


def fed_lin_ucb(
    *,
    exploration: UCB = UCB(),
    schedule: Schedule | int = 25,
    learns_in_batch: bool = True,
    name: str = "FedLinUCB",
) -> Federated:
    """Makes federated LinUCB without privacy: Algorithm 1 of Zhou & Chowdhury (2024) with the identity protocol.

    Args:
        exploration: regulariser and confidence width.
        schedule: as in `Federated`; 1 is the super single agent that sees all M users of a round.
        learns_in_batch: True: agents learn inside the batch (Algorithm 1). False: only at synchronisations (Algorithm
            8).
        name: label in results.

    Returns:
        The recipe, a `Federated`.

    Raises:
        ValueError, TypeError: as `Federated`.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
        >>> result = fb.simulate(env, fb.algos.fed_lin_ucb(), horizon=200, key=jax.random.key(0), seeds=4)
        >>> result.communication["rounds"][:, -1]
        array([8, 8, 8, 8])
    """
    policy = validate.instance("exploration", exploration, Policy, "an fb.algos.UCB")
    validate.text("name", name)
    return Federated(policy=policy, schedule=schedule, learns_in_batch=learns_in_batch, name=name)


def private_fed_lin_ucb(
    privacy: Mechanism | Budget,
    *,
    exploration: UCB = UCB(),
    schedule: Schedule | int = 25,
    learns_in_batch: bool = False,
    name: str = "Private-FedLinUCB",
) -> Federated:
    """Makes Private-FedLinUCB, where every B rounds the server learns noisy sums of x y and x x' over all silos.

    With a budget alone, every silo adds Gaussian noise to the nodes of a binary tree over its own batch sums (Algorithm
    2): a user trusts her silo, but neither the server nor other silos. The privacy unit is one user of one round. Under
    adjacency "replace" (the default of a budget) a user moves a batch sum by at most sqrt(4.5) in joint l2 norm of (x
    y, x x'), under "add_remove" by sqrt(2), and all L nodes that contain her batch together by sqrt(L) times that. With
    another mechanism its trust model says who adds the noise. A good choice for a given trust model is release="blt"
    with `UCB(confidence="known_noise", regularizer="project")`.

    Args:
        privacy: a budget (then a binary tree at every silo, Algorithm 2) or an `fb.privacy.Mechanism`.
        exploration: regulariser and confidence width.
        schedule: as in `Federated`.
        learns_in_batch: as in `Federated`.
        name: label in results.

    Returns:
        The recipe, a `Federated`.

    Raises:
        ValueError, TypeError: as `Federated`.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(epsilon=1.0, delta=0.1))
        >>> algo.certificate(env.spec, horizon=50).claim
        'certified'
        >>> algo.replace(learns_in_batch=True).certificate(env.spec, 50).claim
        'as_printed'
        >>> algo.replace(release="blt", trust="secagg", epsilon=2.0).privacy.budget.epsilon
        2.0

    Reference: Zhou & Chowdhury (2024), Algorithms 1, 2, 4-8, Theorems 5.1, 5.3, 5.5.
    """
    policy = validate.instance("exploration", exploration, Policy, "an fb.algos.UCB")
    validate.text("name", name)
    if privacy is None:
        raise TypeError("privacy must be an fb.privacy.Mechanism or an fb.privacy.Budget, got None; see fed_lin_ucb")
    return Federated(policy=policy, schedule=schedule, privacy=privacy, learns_in_batch=learns_in_batch, name=name)
