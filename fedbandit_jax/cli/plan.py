"""The command `fedbandit plan`: recommends a trust model, release, schedule and policy."""

from __future__ import annotations

import dataclasses
import operator
from typing import Annotated, Any, ClassVar, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Adjacency, Command, Flag, Option, progress
from fedbandit_jax.cli.data import Log, Roles, Table
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

HORIZON, DELTA = 10_000, 1e-7  # of simulated users
SCRIPT = """All candidates, exclusions and the certificate: the same command with --details

This code runs it on users that the plan has not seen:

import jax
import fedbandit_jax as fb

env = {env}
algo = {algo}
result = fb.simulate(env, algo, horizon={horizon}, key=jax.random.key({seed}), seeds=8)
print(result.summary())"""
PASSED = ("at_most", "trusted", "liars", "max_syncs", "rounds")  # to `fb.plan`


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanCommand(Command):
    """Recommend a trust model, release, schedule and policy for a privacy budget and limits on communication.

    In every round each of M silos serves one user with K arms, which are feature vectors of length d. State the trust
    model, the budget (epsilon, delta), and how much silos may communicate.

    The command prints the recommendation, its predicted regret, and Python code that runs it. --details adds
      - all candidates: regret with a 95 % interval, synchronisations, bits of a silo, simulated part of T
      - excluded candidates, with reasons
      - the certificate of the recommendation

    Communication and certificate are exact. Regret is extrapolated from simulations. All candidates run for an eighth
    of --rounds, or for the rounds of 10^5 users if these are more. The best eight run for all of --rounds.

    Users are like those of `fedbandit simulate`, or of your table (--data). For other users call fb.plan in Python.

    For example:
      fedbandit plan                                    the paper's size; users trust their own silo only
      fedbandit plan --trusted secagg                   with secure aggregation
      fedbandit plan --max-syncs 20                     at most 20 synchronisations
      fedbandit plan --data log.csv --silo hospital --arm drug --reward cured
      fedbandit plan --horizon 5000 --users 500         500 returning users of each silo, about ten visits each
      fedbandit plan --users 5000 --visits 4            5,000 users of each silo, who come up to 4 times
      fedbandit plan --epsilon 0.5 1 2 4 --at-most 1.2  the least epsilon that adds at most a fifth to the regret
      fedbandit plan --trusted secagg --dropouts 0.1    a silo misses one synchronisation in ten
    """

    flag_of: ClassVar = {"source": "data", "budget": "epsilon", "rate": "dropouts"}

    # parties that users trust besides their own silo. silo: nobody; shuffler; secagg: secure aggregation; server. You
    # may name several.
    trusted: Annotated[
        tuple[Literal["silo", "shuffler", "secagg", "server"], ...], tyro.conf.arg(metavar="PARTY ...")
    ] = ("silo",)
    # epsilon of the budget, for all visits of a user together. With --at-most several.
    epsilon: Annotated[tuple[float, ...], tyro.conf.arg(metavar="FLOAT ...")] = (1.0,)
    # recommend the smallest epsilon with at most this multiple, at least 1, of the least regret without privacy.
    at_most: Option[float] = None
    # delta of the budget, in (0, 1). Choose it far below one over the number of users (default: 1e-7; with --data a
    # tenth of one over the number of rows).
    delta: Option[float] = None
    # difference between neighbouring data sets. replace: one user is replaced by any other; zero_out: one user's
    # contribution is replaced by zero.
    adjacency: Adjacency = "replace"
    agents: int = 100  # M, the number of silos.
    arms: int = 100  # K, the number of arms.
    dim: int = 10  # d, the number of features.
    horizon: Option[int] = None  # T, the number of rounds (default: 10000; with --data as many as use every row once).
    # returning users of one silo (default: every user comes once). All visits of a user are protected together. The
    # plan recommends how many of them count, unless --visits says it.
    users: Option[int] = None
    visits: Option[int] = None  # most visits of a user that count, with --users at most one in a batch.
    # probability that a silo misses a synchronisation. Its next message includes the missed data.
    dropouts: float = 0.0
    liars: float = 0.0  # share of Byzantine silos, in [0, 1/2), which send false sums towards one direction.
    delay: int = 0  # rounds before a reward arrives.
    max_syncs: Option[int] = None  # most synchronisations in T rounds.
    rounds: Option[int] = None  # most simulated rounds (default: enough for 10^6 users, at least T / 8).
    random_seed: int = 0  # seed of the random number generator.
    details: Flag = False  # print all candidates and the certificate, too.
    data: Table = None  # your table, .csv or .parquet. With --user all visits of a user are protected together.
    columns: Log = dataclasses.field(default_factory=Roles)

    @override
    def run(self) -> int:
        import jax

        import fedbandit_jax as fb
        from fedbandit_jax.planning.recommendation import code

        validate.integer("random_seed", self.random_seed, at_least=0, at_most=2**32 - 2)
        validate.integer("delay", self.delay, at_least=0, at_most=10**4)
        self.applies_to("simulated users, without --data", self.data is None, "agents", "arms", "dim", "users")
        kind, given = "data.table", self.columns.of(self.data)
        if self.data is None:
            kind = "envs.sphere"
            given = dict(n_agents=self.agents, n_arms=self.arms, dim=self.dim, rewards="bernoulli")
        made = f"fb.{kind}({', '.join(f'{name}={value!r}' for name, value in given.items())})"
        env: Any = operator.attrgetter(kind)(fb)(**given)
        horizon, delta = HORIZON, DELTA
        if self.data is not None:
            horizon, delta = max(1, env.fit.replayed_rows // env.spec.n_agents), 0.1 / env.fit.replayed_rows
        horizon = horizon if self.horizon is None else self.horizon
        delta = delta if self.delta is None else self.delta
        if self.delay and self.delay >= horizon:
            raise BadValue("delay", f"must be below the horizon of {horizon:,} rounds", self.delay)
        wraps = {"returning": self.users, "dropout": self.dropouts or None, "delay": self.delay or None}
        for wrap, value in wraps.items():
            if value is not None:
                env, made = getattr(fb.envs, wrap)(env, value), f"fb.envs.{wrap}({made}, {value})"
        unit: Any = None if self.visits is None else fb.privacy.Users(self.visits)
        if env.spec.n_users:
            unit = "user" if unit is None else dataclasses.replace(unit, per_batch=1, silos=env.spec.silos)
        found = fb.plan(
            env,
            [fb.privacy.Budget(epsilon, delta, self.adjacency) for epsilon in self.epsilon],
            horizon=horizon,
            key=jax.random.key(self.random_seed),
            unit=unit,
            progress=progress(),
            **{name: getattr(self, name) for name in PASSED},
        )
        print(found if self.details or not (found.best or found.choices) else found.answer())
        if found.best is not None:
            algo = code(found.best.algo)
            print(SCRIPT.format(env=made, algo=algo, horizon=horizon, seed=self.random_seed + 1))
        return 0 if found.best else 1
