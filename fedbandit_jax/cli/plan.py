"""The command `fedbandit plan`: recommends a trust model, release, schedule and policy."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

import tyro
from typing_extensions import override

from fedbandit_jax.cli._command import Adjacency, Command, progress
from fedbandit_jax.cli._log import Columns, Roles
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue

SCRIPT = """
The code that runs it, on users that the plan has not seen:

import jax
import fedbandit_jax as fb

env = {env}
algo = {algo}
result = fb.simulate(env, algo, horizon={horizon}, key=jax.random.key({seed}), seeds=8)
print(result.summary())"""

PASSED = ("trusted", "dropouts", "liars", "delay", "max_syncs", "max_bits", "seeds", "rounds")  # on to `fb.plan`


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanCommand(Command):
    """Recommend a trust model, release, schedule and policy, for a budget and limits on communication.

    M silos serve one user each in every one of T rounds; a user comes with K arms, which are feature vectors of length
    d. Say whom users trust, which (epsilon, delta) each of them is promised, and how much silos may communicate. The
    command answers with
      - what to use, as Python code that runs it,
      - a table of what was considered: predicted regret with a 95 % interval, and as a multiple of that without
        privacy; synchronisations, and bits that a silo sends and receives; which part of T was simulated,
      - what was excluded, and why,
      - the certificate of the recommended algorithm.

    Communication and certificate are exact. Regret is predicted from simulations: all candidates go through an eighth
    of --rounds, or as many as 10^5 users need if that is more; the best eight through all of them, under four times as
    many other seeds; and growth is extrapolated from there to T.

    Users are those of the paper's synthetic instance ("sphere" in `fedbandit simulate`), or those of a table of your
    own, --data. If yours are different, give fb.plan in Python an environment that is like them.

    For example:
      fedbandit plan                                            the paper's size, nobody is trusted but silos
      fedbandit plan --trusted secagg --delta 1e-7              with secure aggregation
      fedbandit plan --max-syncs 20                             at most 20 synchronisations
      fedbandit plan --data log.csv --silo hospital --arm drug --reward cured
      fedbandit plan --horizon 5000 --users 500                 500 users a silo, who come about ten times each
      fedbandit plan --trusted secagg --dropouts 0.1            a silo misses one synchronisation in ten

    Args:
        trusted: whom users trust beside their own silos: silo (nobody else), shuffler, secagg (secure aggregation),
            server; several may be named.
        epsilon: epsilon of the budget, for all visits of a user together.
        delta: delta of the budget, in (0, 1); it means something only if it is far below one over the number of users.
        adjacency: what neighbouring data sets differ in: one user is replaced by any other (replace), or one user's
            contribution is replaced by zero (zero_out).
        agents: M, the number of silos.
        arms: K, the number of arms.
        dim: d, the number of features.
        horizon: T, the number of rounds.
        users: users of one silo, who come again and again at random. One of them is protected in all her visits, and
            how many of these are let in is recommended, too. By default every user comes once.
        visits: how often one user may come, if not as --users says.
        dropouts: probability that a silo misses a synchronisation; what it could not send comes with its next message.
        liars: share of silos that send false sums, all towards one direction; in [0, 1/2).
        delay: rounds by which rewards come late.
        max_syncs: the most synchronisations in T rounds.
        max_bits: the most bits that one silo may send and receive in T rounds.
        seeds: simulations of each candidate; the best eight have four times as many.
        rounds: how many rounds are simulated at most; by default as many as 10^6 users need, but not less than T / 8.
        random_seed: seed of the random number generator.
        data: a table of your own, .csv or .parquet. If it says who came, one user is protected in all her visits.
            Unless they are given, T is the number of rounds in which every row comes once, and delta a tenth of one
            over the number of rows, as `fedbandit data` prints them.
    """

    trusted: tuple[Literal["silo", "shuffler", "secagg", "server"], ...] = ("silo",)
    epsilon: Annotated[tuple[float, ...], tyro.conf.arg(metavar="FLOAT")] = (1.0,)
    delta: float = 0.1
    adjacency: Adjacency = "replace"
    agents: int = 100
    arms: int = 100
    dim: int = 10
    horizon: int = 10_000
    users: int | None = None
    visits: int | None = None
    dropouts: float = 0.0
    liars: float = 0.0
    delay: int = 0
    max_syncs: int | None = None
    max_bits: float | None = None
    seeds: int = 4
    rounds: int | None = None
    random_seed: int = 0
    data: str | None = None
    columns: Columns = dataclasses.field(default_factory=Roles)

    flag_of: ClassVar = {"source": "data"}

    @override
    def run(self) -> int:
        import jax

        import fedbandit_jax as fb
        from fedbandit_jax.planning.recommendation import code

        if len(self.epsilon) != 1:
            got = " ".join(f"{one:g}" for one in self.epsilon) or "none"
            raise BadValue("epsilon", "must be one number, as a plan is for one budget", got, got=got)
        self.columns.check(self.data)
        validate.integer("random_seed", self.random_seed, at_least=0, at_most=2**32 - 2)
        self.applies_to("users that are made up, without --data", self.data is None, "agents", "arms", "dim", "users")
        unit: Any = None if self.visits is None else fb.privacy.Users(self.visits)
        horizon, delta = self.horizon, self.delta
        env: Any = fb.envs.sphere(self.agents, self.arms, self.dim, rewards="bernoulli")
        made = f'fb.envs.sphere(n_agents={self.agents}, n_arms={self.arms}, dim={self.dim}, rewards="bernoulli")'
        if self.data is not None:
            env, made = self.columns.table(self.data), self.columns.code(self.data)
            rows = env.fit.replayed_rows
            horizon = horizon if "horizon" in self.given else max(1, rows // env.spec.n_agents)
            delta = delta if "delta" in self.given else 1 / (10 * rows)
            if env.spec.n_users:
                unit = "user" if unit is None else dataclasses.replace(unit, silos=env.spec.silos)
        if self.users is not None:
            self.applies_to("users who come as often as it says, not with --users", False, "visits")
            validate.integer("users", self.users, at_least=1)
            unit, env, made = "user", fb.envs.returning(env, self.users), f"fb.envs.returning({made}, {self.users})"
        made = f"fb.envs.dropout({made}, {self.dropouts})" if self.dropouts else made
        made = f"fb.envs.delay({made}, {self.delay})" if self.delay else made
        found = fb.plan(
            env,
            fb.privacy.Budget(*self.epsilon, delta, self.adjacency),
            horizon=horizon,
            key=jax.random.key(self.random_seed),
            unit=unit,
            progress=progress(),
            **{name: getattr(self, name) for name in PASSED},
        )
        print(found)
        if found.best is None:
            return 1
        numbers = dict(horizon=horizon, seed=self.random_seed + 1)
        print(SCRIPT.format(env=made, algo=code(found.best.algo), **numbers))
        return 0
