"""A small example of everything that is registered, by family: `EXAMPLES`, `WORLDS` and `DATA`; and how one is played.

`tests/test_contract.py` asks every row the same questions; oracles and limits read the same runs (`played`).
"""

import contextlib
import functools
import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from data import made_up
from four_arms import VARIANTS, algorithm
from helpers import ByMessage, SharesRDPSE, prefixes, random_script

import fedbandit_jax as fb
from fedbandit_jax.engine import prepare
from fedbandit_jax.engine.runners import make_runner

A, E, P, S = fb.algos, fb.envs, fb.privacy, fb.schedules
# Agents, arms, features (of two there would be one entry off the diagonal, and no order of them), rounds, seeds.
M, K, D, T, SEEDS = 4, 3, 3, 40, 3
KEY = jax.random.key(20261120)
BUDGET, LITTLE = P.Budget(5.0, 0.1), P.Budget(2000.0, 0.1)  # of little noise are those who wait for data
BY_BATCH = P.Users(4, per_batch=1, apart=2)

SCRIPT = random_script(7, (T, M, K, D), [0.6, -0.5, 0.3])  # draws nothing, so that seeds differ in their noise alone
ONCE, MEANS = (np.broadcast_to(x[0], x.shape) for x in (SCRIPT.contexts, SCRIPT.means))
FIXED = E.script(ONCE, SCRIPT.answers, MEANS, fixed_contexts=True)
SPHERE = E.sphere(M, K, D, rewards="bernoulli")
BACK = E.returning(SPHERE, 3)
AWAY, LATE = E.dropout(SPHERE, 0.3), E.delay(SPHERE, 3, "geometric")
ITEMS = np.eye(K, D, dtype=np.float32)
TABLE = E.replay(np.tile(ITEMS, (M, 1)), np.full(M, K), np.array([0.2, 0.5, 0.9]), n_agents=M, rewards="bernoulli")
USERS = E.clustered(4, 2, 2, n_arms=K, dim=D)
ARMS = E.arms(means=[0.9, 0.5, 0.3], rewards="bernoulli")
ARMS_BACK = E.returning(ARMS, 4)
PARETO = E.arms(means=[0.9, 0.5, 0.3], rewards="pareto", shape=[2.5, 3.0, 8.0])
LIES = E.contaminate(ARMS, 0.1, favoured=2)


class Example(NamedTuple):
    """An algorithm, and what is expected of it in a small environment of its family."""

    name: str
    algo: Any
    env: Any
    claim: str = "none"  # of its certificate
    plain: str = ""  # the example that it is where its noise is 0
    card: str = ""  # its title in docs/zoo.toml
    oracle: str = ""  # the test that compares it with a slow version of its pseudo-code
    audit: str = ""  # the family of `fedbandit audit` that attacks it
    slow: bool = False  # whether it is played in slow tests only: by default another row has the same loop


UCB, THOMPSON, GREEDY = A.UCB(regularizer="project"), A.Thompson(regularization=0.7, scale=0.4), A.Greedy(shrinkage=3.0)
GROWING, GRAPH = S.Geometric(1.5, first=4), dict(graph=fb.networks.make("line", M))
DISCOUNTED, HALF = P.Discounted(0.7), P.Linear(gram_scale=0.5)


def private(release="tree", trust="silo_local", budget=BUDGET, **options):
    return P.Mechanism(budget, release, trust, **options)


VISIT = private(unit="visit")
LINEAR, ASYNC = "algos/linear/test_oracle.py::test_{}", "algos/linear/test_async.py::test_algorithm_1"
SERVER = LINEAR.format("algorithms_with_a_server")
GOSSIP_UCB, GOSSIP = (
    "algos/linear/test_gossip.py::test_algorithm_3",
    "algos/linear/test_gossip.py::test_what_is_heard",
)
PHASED = "algos/linear/test_phased.py::test_dp_dpe"
CLUSTERING, GROUPED = "algos/clusters/test_clustering.py", "algos/clusters/test_grouped.py"
USER_BY_USER = "algos/arms/test_user_by_user.py::test_user_by_user"


def silos(name, policy, privacy=None, schedule=6, env=SCRIPT, **more):
    """A row of `Federated`, by default in batches of 6 rounds, of which 40 are no multiple."""
    own = {one: more.pop(one) for one in ("aggregate", "liars", "learns_in_batch") if one in more}
    algo = A.Federated(policy=policy, schedule=schedule, privacy=privacy, name=name, **own)
    safe = {} if privacy is None else {"claim": "certified", "audit": "linear"}
    return Example(name, algo, env, **{**safe, **more})


def proved(name, algo, env, **more):
    return Example(name, algo, env, "certified", **more)


def deep(*rows):
    return [row._replace(slow=True) for row in rows]


SILOS = [
    Example("LinUCB", A.LinUCB(), SCRIPT, oracle=LINEAR.format("lin_ucb")),
    proved("Uniform play", A.Uniform(), SPHERE, card="Uniform play"),
    silos("FedLinUCB", A.UCB(), card="FedLinUCB", oracle=SERVER),
    silos("FedLinUCB, learns", UCB, learns_in_batch=True, oracle=SERVER),
    silos("Thompson", THOMPSON, oracle=SERVER, slow=True),
    silos("Private-FedLinUCB", A.UCB(), private(), plain="FedLinUCB", card="Private-FedLinUCB", oracle=SERVER),
    silos("Algorithm 1", UCB, private(), env=FIXED, learns_in_batch=True, claim="as_printed",
          card="Private-FedLinUCB, Algorithm 1", oracle=SERVER),
    silos("amplified", A.UCB(), private("tree", "shuffle_amplified"), card="SDP-FedLinUCB by amplification",
          oracle=SERVER),
    silos("Thompson, central", THOMPSON, private("tree", "central"), card="Thompson sampling", oracle=SERVER),
    silos("Epsilon-greedy", A.EpsilonGreedy(explore=10.0, shrinkage=3.0), private("input_perturbation", "local"),
          card="Epsilon-greedy", oracle=SERVER),
    silos("Greedy", GREEDY, private(statistic=HALF), oracle=SERVER, slow=True),
    silos("Logistic", GREEDY, private(statistic=P.Logistic()), oracle=SERVER),
    proved("AdaC-OFUL", A.adac_oful(BUDGET, schedule=6), SCRIPT, card="AdaC-OFUL", oracle=SERVER, audit="linear"),
    Example("FedUCB", A.fed_ucb(schedule=S.LogDet(5.0)), SCRIPT, oracle=SERVER),
    proved("FedUCB, private schedule", A.fed_ucb(
        P.Budget(20.0, 0.1), schedule=S.PrivateLogDet(0.5), learns_in_batch=False), SCRIPT,
        card="FedUCB, private schedule", oracle=SERVER, audit="schedules"),
    *deep(
        silos("known noise", A.UCB(confidence="known_noise", regularizer="project"), private("blt", "secagg"),
              card="UCB by known noise"),
        silos("vector sums", A.UCB(), private("tree", "shuffle_vector_sum"), card="SDP-FedLinUCB by vector sums"),
        proved("joint matrix, messages", ByMessage(
            policy=UCB, schedule=6, privacy=private("blt", "silo_local_matrix")), SCRIPT, audit="linear"),
        silos("Greedy, growing", GREEDY, None, GROWING),
        silos("Greedy, Decaying", GREEDY, private(P.Decaying(1.5), statistic=HALF), GROWING, plain="Greedy, growing",
              card="Greedy, growing batches"),
        silos("Discounted, plain", A.Forgetting(policy=UCB, memory=DISCOUNTED)),
        silos("Discounted", A.Forgetting(policy=UCB, memory=DISCOUNTED), private(DISCOUNTED),
              plain="Discounted, plain", card="Forgetting"),
        silos("Discounted, secagg", A.Forgetting(policy=THOMPSON, memory=DISCOUNTED), private(DISCOUNTED, "secagg"),
              GROWING),
        silos("lies, sum", GREEDY, liars=P.Liars([0], "sign_flip")),
        silos("lies, median", GREEDY, None, GROWING, aggregate="median", liars=P.Liars([0], "random")),
        silos("lies, trimmed mean", GREEDY, private(), aggregate="trimmed_mean", liars=P.Liars([0], "collude")),
        proved("DP-DPE", A.dp_dpe(ITEMS, private("input_perturbation"), schedule=6), TABLE, card="DP-DPE",
               oracle=PHASED, audit="linear"),
        Example("Private-FedUCB", A.fed_ucb(LITTLE, schedule=S.LogDet(5.0, "dp20")), SCRIPT, card="FedUCB",
                oracle=SERVER, audit="schedules"),
    ),
]  # fmt: skip


def fitting():
    """Every release under every trust model that its proof covers."""
    for trust, release in itertools.product(P.TRUST, P.RELEASES):
        with contextlib.suppress(ValueError):
            mechanism = private(release, trust)
            drawn = trust not in ("secagg", "shuffle_vector_sum")  # whose noise is of integers, and is never 0
            yield silos(f"{trust} {release}", THOMPSON, mechanism, plain="Thompson" * drawn)


DEAR = deep(
    *fitting(),
    silos("lies, geometric median", GREEDY, private(), GROWING, aggregate="geometric_median",
          liars=P.Liars([0], "large")),
    silos("user-defined parts", UCB, private(prefixes, P.GaussianTrust("mine", sources=1, whose="of mine"))),
)  # fmt: skip


def unsteady(name, release, env, trust="silo_local", schedule=4, **options):
    """A row of silos whose users return, or that miss synchronisations, or get rewards late."""
    return silos(name, GREEDY, private(release, trust, statistic=HALF, **options), schedule, env)


UNSTEADY = [
    unsteady("BandMF", P.BandMF(3, BY_BATCH), BACK, unit=BY_BATCH),
    *deep(
        unsteady("drop-outs", "input_perturbation", AWAY, "secagg", dropouts=1),
        unsteady("delays", "blt", LATE),
        unsteady("BandMF, secagg", P.BandMF(3, BY_BATCH), BACK, "secagg", unit=BY_BATCH),
        unsteady("BISR", P.BISR(3), BACK, unit=BY_BATCH),
        unsteady("drop-outs, growing", "input_perturbation", AWAY, "secagg", GROWING, dropouts=1),
        unsteady("delays, growing", "tree", LATE, "central", GROWING),
    ),
]
NO_SERVER = [
    Example("Gossip-FedUCB", A.GossipFedUCB(**GRAPH, gamma=3, schedule=S.LogDet(2.0)), SCRIPT, oracle=GOSSIP_UCB),
    Example("Private-Gossip-FedUCB", A.GossipFedUCB(
        **GRAPH, gamma=2, privacy=LITTLE, schedule=S.LogDet(8.0, "dp20")), SCRIPT, card="FedUCB without a server",
        oracle=GOSSIP_UCB),
    Example("Gossip, plain", A.Gossip(**GRAPH, policy=A.UCB(), gamma=2, schedule=GROWING), SCRIPT, oracle=GOSSIP),
    proved("Gossip", A.Gossip(**GRAPH, policy=A.UCB(), gamma=2, schedule=GROWING, privacy=BUDGET), SCRIPT,
           plain="Gossip, plain", card="Gossip", oracle=GOSSIP, audit="linear"),
    Example("Async-FedLinUCB", A.async_fed_lin_ucb(), USERS, card="Async-FedLinUCB",
            oracle=ASYNC),
    *deep(
        proved("Gossip, users", A.Gossip(
            **GRAPH, policy=GREEDY, schedule=GROWING, privacy=private(unit=BY_BATCH)), BACK, audit="linear"),
        proved("async Thompson", A.AsyncFederated(policy=THOMPSON, schedule=2, privacy=VISIT), USERS,
               plain="async Thompson, plain", oracle=ASYNC, audit="schedules"),
        Example("async Thompson, plain", A.AsyncFederated(policy=THOMPSON, schedule=2), USERS),
        proved("async, private schedule", A.AsyncFederated(
            policy=GREEDY, schedule=S.PrivateLogDet(0.5, trigger="he22"), privacy=VISIT), USERS,
            oracle=ASYNC, audit="schedules"),
    ),
]  # fmt: skip
CLUSTERS = [
    Example("CLUB", A.CLUB(), USERS, card="CLUB", oracle=CLUSTERING),
    Example("SCLUB", A.SCLUB(), USERS, card="SCLUB", oracle=CLUSTERING),
    Example("FCLUB-DC", A.FCLUB(), USERS, card="FCLUB-DC", oracle=CLUSTERING),
    Example("Homo", A.homo(), USERS, oracle=CLUSTERING),
    proved("Together", A.Grouped(grouping=A.Together(), schedule=6, privacy=BUDGET), USERS, oracle=GROUPED,
           audit="clusters"),
    *deep(
        Example("FCLUB", A.FCLUB(upload=1, download=1), USERS, card="FCLUB", oracle=CLUSTERING),
        Example("CDP-FCLUB-DC", A.FCLUB(BUDGET, shift="once"), USERS, card="CDP-FCLUB-DC", oracle=CLUSTERING,
                audit="clusters"),
        Example("CDP-FCLUB-DC, count", A.FCLUB(BUDGET, trigger="count"), USERS, oracle=CLUSTERING, audit="clusters"),
        proved("CDP-Homo-DC", A.homo_dc(BUDGET, trigger="count", upload=1.5), USERS, card="CDP-Homo-DC",
               oracle=CLUSTERING, audit="clusters"),
        Example("Alone, plain", A.Grouped(grouping=A.Alone(), schedule=6), USERS, oracle=GROUPED),
        Example("Mixture, plain", A.Grouped(schedule=6), USERS, oracle=GROUPED),
        proved("Mixture", A.Grouped(schedule=6, privacy=BUDGET), USERS, plain="Mixture, plain", card="Mixture",
               oracle=GROUPED, audit="clusters"),
    ),
]  # fmt: skip


def elimination(name, env=ARMS, title="", **options):
    """A row of a variant of successive elimination."""
    claim, audit = ("none", "") if name == "SE" else ("certified", "arms")
    algo = algorithm(name, **options)
    return Example(title or name, algo, env, claim, card=name * (not title), oracle=USER_BY_USER, audit=audit)


MULTI_ARMED = [
    *(elimination(name)._replace(slow=name != "Dist-RDP-SE") for name in VARIANTS),
    proved("Uniform play, of arms", A.UniformArms(), ARMS, card="Uniform play, of arms"),
    *deep(
        proved("Dist-RDP-SE, messages", SharesRDPSE(1.0, radius="exact"), ARMS, oracle=USER_BY_USER, audit="arms"),
        elimination("Dist-RDP-SE", ARMS_BACK, "Dist-RDP-SE, users", unit=BY_BATCH),
        proved("RR-SE", A.RRSE(3.0), ARMS, card="RR-SE", oracle=USER_BY_USER, audit="arms"),
        proved("Truncated SE", A.TruncatedSE(A.DistDPSE(1.0), moment=1.2), PARETO, card="Truncated SE",
               oracle=USER_BY_USER, audit="arms"),
        proved("Truncated SE, corrupted", A.TruncatedSE(A.RRSE(2.0, corrupted="messages"), corruption=0.01), LIES,
               oracle=USER_BY_USER, audit="arms"),
        Example("AdaC-UCB, plain", A.AdaCUCB(), ARMS, oracle=USER_BY_USER),
        proved("AdaC-UCB", A.AdaCUCB(A.LDPSE(1.0, radius="exact")), ARMS,
               card="AdaC-UCB", oracle=USER_BY_USER, audit="arms"),
        proved("Phased KL-UCB", A.PhasedKLUCB(A.DistDPSE(1.0)), ARMS, card="Phased KL-UCB", oracle=USER_BY_USER,
               audit="arms"),
        proved("Phased IMED", A.PhasedIMED(A.LDPSE(1.0)), ARMS, card="Phased IMED", oracle=USER_BY_USER, audit="arms"),
        proved("Phased Thompson", A.PhasedThompson(A.DistRDPSE(1.0), first=4), ARMS,
               card="Phased Thompson", oracle=USER_BY_USER, audit="arms"),
        proved("Thompson, arms", A.ThompsonArms(1.0, first=4), ARMS, card="Thompson, arms",
               oracle=USER_BY_USER, audit="arms"),
        proved("Top Two", A.TopTwo(A.DistRDPSE(1.0)), ARMS, card="Top Two", oracle=USER_BY_USER,
               audit="arms"),
        proved("Sequential halving", A.SequentialHalving(A.CDPSE(1.0), budget=30), ARMS, card="Sequential halving",
               oracle=USER_BY_USER, audit="arms"),
        proved("Sequential halving, users", A.SequentialHalving(A.DistDPSE(1.0, unit=BY_BATCH), budget=30), ARMS_BACK,
               oracle=USER_BY_USER, audit="arms"),
    ),
]  # fmt: skip
FAMILIES = SILOS, DEAR, UNSTEADY, NO_SERVER, CLUSTERS, MULTI_ARMED
EXAMPLES = {row.name: row for row in itertools.chain(*FAMILIES)}


def logged(**more):
    """A log: silo, arm, reward, a feature, a user, and the probability of the arm."""
    i = np.arange(240)
    log = dict(silo=i % 2, arm=i // 2 % 3, seen=i // 6 % 2, age=np.sin(i), who=i % 20, share=np.full(len(i), 1 / 3))
    return fb.data.table(log, silo="silo", arm="arm", reward="seen", features=["age"], **more)


# Name in `fb.envs.ENVIRONMENTS` and `WRAPPERS` -> environments.
WORLDS = {
    "sphere": [E.sphere(M, K, D, contexts=contexts, rewards=rewards)
               for contexts, rewards in (("fresh", "gaussian"), ("fixed", "bernoulli"), ("fresh", "clipped_gaussian"))],
    "replay": [TABLE, SCRIPT],
    "gap": [E.gap(M, K, D, rewards=rewards) for rewards in ("bernoulli", "gaussian")],
    "arms": [*(E.arms(n_arms=K, rewards=rewards) for rewards in ("gaussian", "bernoulli")), PARETO],
    "clustered": [USERS, E.clustered(4, 2, 2, n_arms=K, dim=D, arrivals=[1, 2, 3, 4], rewards="gaussian")],
    "community": [E.community(ITEMS, 0.5 * ITEMS[[0, 1, 1]], np.array([0, 1, 1]), n_servers=2, n_arms=K)],
    "returning": [BACK, ARMS_BACK],
    "dropout": [AWAY],
    "delay": [LATE],
    "drift": [E.drift(SPHERE, 3), E.drift(SPHERE, 4, "slide"), E.drift(E.arms(n_arms=K), 2)],
    "contaminate": [LIES],
    "rejection": [E.rejection(logged(propensity="share"))],
}  # fmt: skip


def from_files(load, write, **options):
    """A loader of files in a folder, into which small ones of its format are written first."""

    def made(folder):
        write(folder)
        return load(folder, **options)

    return made


def write_ratings(folder):
    made_up.write(folder, made_up.ratings())


def write_queries(folder):
    for number in (1, 2):
        sizes = ([5, 7], [4], [6, 3])
        firsts = 1, 3, 4
        parts = [made_up.lines(size, first_query=first) for size, first in zip(sizes, firsts)]
        made_up.write_fold(folder / f"Fold{number}", parts)


RATINGS = dict(dim=4, n_users=30, n_items=25, n_active=40, n_clusters=3)
# Name in `fb.data` -> what makes a small environment, or a table of features, in an empty folder.
DATA = {
    "table": lambda _: logged(user="who"),
    "classification": lambda _: fb.data.classification("breast_cancer"),
    "movielens": from_files(fb.data.movielens, write_ratings, **RATINGS),
    "mslr": from_files(fb.data.mslr, write_queries),
    "mslr_arms": from_files(fb.data.mslr_arms, write_queries, n_arms=5),
    **{name: lambda _, load=load: load() for name, load in fb.data.EXAMPLES.items()},
}


class Played(NamedTuple):
    """A run of an example under `KEY`, from which alone its noise is drawn."""

    result: fb.Result  # of all rounds; its records are the leaves of the last states
    runner: Any

    @property
    def bound(self):
        return self.runner.algo

    @property
    def synced(self):
        """Whether a round ended with a synchronisation, (seeds, T)."""
        return np.diff(self.result.communication["rounds"], axis=-1, prepend=0) > 0

    @property
    def gaps(self):
        """The regret of every round, (seeds, T)."""
        return np.diff(self.result.regret, axis=-1, prepend=0)

    def state(self, seed):
        """The learner's last state."""
        paths, form = jax.tree_util.tree_flatten_with_path(jax.eval_shape(self.runner.played.init, KEY)[1])
        names = ["state" + jax.tree_util.keystr(path) for path, _ in paths]
        return jax.tree.unflatten(form, [self.result.records[name][seed, 0] for name in names])


def simulate(env, algo, **options):
    """A run whose noise is drawn from `KEY` alone, whatever the algorithm is called."""
    stateless = isinstance(algo, (A.Uniform, A.UniformArms))
    run = dict(horizon=T, key=KEY, seeds=SEEDS, throw=False, record={} if stateless else {"state": fb.record.final()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "salt", lambda *marks: ())
        return fb.simulate(env, algo, **run | options)


def play(env, algo) -> Played:
    return Played(simulate(env, algo), make_runner(env, algo.bind(env.spec, T), T, None))


@functools.cache
def played(name) -> Played:
    """The run of an example, once in a process."""
    return play(EXAMPLES[name].env, EXAMPLES[name].algo)


def run_of(name, more):
    """The run of an example, or of an algorithm of `more` on the script; and the algorithm."""
    algo = EXAMPLES[name].algo if name in EXAMPLES else more[name]
    return (played(name) if name in EXAMPLES else play(SCRIPT, algo)), algo
