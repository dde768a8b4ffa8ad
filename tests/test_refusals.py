"""What does not go together is refused by name, before anything compiles: worlds, recipes, sweeps, runs and records.

Values of one argument are in test_arguments.py, and pairs of parts in privacy/test_compatibility.py.
"""

import dataclasses
import functools
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import examples as ex
import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from four_arms import ARMS, HORIZON, algorithm
from helpers import ENV, PLAIN, PRIVATE, Bias, SharesRDPSE, refused, simulate, sweep

import fedbandit_jax as fb
from fedbandit_jax import networks
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.executors import executor

A, E, P, R, S = fb.algos, fb.envs, fb.privacy, fb.record, fb.schedules
KEY, RUN = ex.KEY, dict(key=ex.KEY, seeds=1)

# Environments.

SPHERE, FIXED, GAP = E.sphere(4, 5, 3, rewards="bernoulli"), E.sphere(4, 5, 3, contexts="fixed"), E.gap(2, 4, 3)
GROUPS, STAYING = E.clustered(5, 1, 2), E.returning(SPHERE, 5, session=4)
EYE, LABELS = np.eye(3), np.array([0, 1, 1])
ROWS = dict(features=EYE, query_sizes=np.array([2, 1]), theta=np.full(3, 0.5), n_agents=1)
LOG = {"silo": np.arange(60) % 2, "arm": np.arange(60) // 2 % 3, "y": np.arange(60) // 6 % 2, "p": np.full(60, 1 / 3)}
OPTIONS = dict(silo="silo", arm="arm", reward="y")
REPLAYED = E.rejection(fb.data.table(LOG, **OPTIONS, propensity="p"))


@fb.pytree
class Forgets:
    """An environment of one's own without `pull`."""

    spec: fb.Spec = fb.static()
    init, observe = E.Sphere.init, E.Sphere.observe


@fb.pytree
class Talks:
    """One whose rewards are words."""

    spec: fb.Spec = fb.static()

    def init(self, key):
        return ()

    def observe(self, key, world, t):
        return fb.Round(jnp.zeros((4, 5, 3))), world

    def pull(self, key, world, offered, arms):
        return fb.Feedback("good", jnp.zeros(4))


@fb.pytree
class Answers:
    """One for multi-armed algorithms without `means`."""

    spec: fb.Spec = fb.static()
    init, answers = E.RandomArms.init, E.RandomArms.answers


@fb.pytree
class Short(P.TRUST["central"]):
    """Noise for three numbers."""

    def noise(self, key, size):
        return jnp.zeros(3)


@dataclasses.dataclass(frozen=True)
class Single(P.Statistic):
    """A statistic without a weight."""

    max_weight, responses = 1.0, (0.0, 1.0)

    def contribution(self, x, y, seen):
        return y


def community(items=EYE, thetas=EYE, clusters=LABELS, n_servers=1):
    return E.community(items, thetas, clusters, n_servers=n_servers)


def replay(**changes):
    return E.replay(**ROWS | changes)


WORLDS = [  # the argument that is named, and what refuses it
    ("n_arms", lambda: E.arms(n_arms=3, means=[0.1, 0.2])),
    ("means", lambda: E.arms(means=[0.2])),
    ("means", lambda: E.arms(means=[0.2, 1.1])),
    ("n_arms", lambda: E.gap(2, 17, 4)),  # > d^2
    ("shape", lambda: E.sphere(2, 2, 2, rewards="gaussian", shape=2.0)),
    ("shape", lambda: E.sphere(2, 2, 2, rewards="student_t", shape=1.0)),
    ("shape", lambda: E.sphere(2, 2, 2, rewards="pareto", shape=1.2)),
    *(("shape", lambda shape=shape: E.arms(means=[0.1, 0.2, 0.3], rewards="pareto", shape=shape))
      for shape in (1.2, [2.0, 3.0], "long")),
    ("shape", lambda: E.arms(n_arms=3, shape=2.0)),
    ("n_clusters", lambda: E.clustered(3, 1, 4)),
    ("n_clusters", lambda: E.clustered(10**5, 1, 10_000)),
    ("n_servers", lambda: E.clustered(3, 4, 1)),
    ("gap", lambda: E.clustered(n_clusters=5, gap=0.95)),  # of random vectors, which are not so far apart
    ("gap", lambda: E.clustered(n_clusters=3, dim=2)),
    ("arrivals", lambda: E.clustered(4, 2, arrivals=[1, 2])),
    ("items", lambda: community(thetas=EYE[:, :2])),
    ("clusters", lambda: community(clusters=LABELS[:2])),
    ("clusters", lambda: community(clusters=LABELS + 1)),
    ("n_servers", lambda: community(n_servers=4)),
    ("rewards", lambda: community(items=2 * EYE)),
    ("features", lambda: replay(features=np.zeros((0, 3)))),
    ("theta", lambda: replay(theta=np.ones(4))),
    ("query_sizes", lambda: replay(query_sizes=np.array([4, 4]))),
    ("query_sizes", lambda: replay(query_sizes=np.array([3, 0]))),
    ("n_agents", lambda: replay(n_agents=3)),
    ("rewards", lambda: replay(theta=np.full(3, 2.0), rewards="bernoulli")),
    ("rewards", lambda: replay(theta=np.full(3, -0.5), rewards="pareto")),
    ("fixed_contexts", lambda: E.script([[[[0.0]] * 2], [[[0.5]] * 2]], np.zeros((2, 1, 2)), fixed_contexts=True)),
    ("env", lambda: E.returning(STAYING, 4)),
    ("arrivals", lambda: E.returning(SPHERE, 4, [1, 2])),
    ("arrivals", lambda: E.returning(SPHERE, 4, [1, 1, 1, 1e-7])),
    ("session", lambda: E.returning(E.arms(3), 4, session=2)),
    ("rate", lambda: E.dropout(SPHERE, [0.1, 0.2])),  # of four silos
    ("rate", lambda: E.dropout(SPHERE, 0.1, np.zeros((2, 4), bool))),
    ("schedule", lambda: E.dropout(SPHERE, schedule=[[1, 0, 0, 0]])),
    ("schedule", lambda: E.dropout(SPHERE, schedule=np.zeros((2, 3), bool))),
    ("env", lambda: E.contaminate(E.returning(E.arms(3), 5))),
    ("env", lambda: E.contaminate(SPHERE)),
    ("env", lambda: E.drift(STAYING, 3)),  # a new world would forget who is being served
    ("env", lambda: E.drift(E.dropout(STAYING, 0.1), 3)),
    ("env", lambda: E.drift(GROUPS, 3)),
    ("env", lambda: E.drift(E.arms(means=[0.2, 0.8]), 3)),  # the same world for every seed
    ("when", lambda: E.drift(SPHERE, (3, 3))),
    ("when", lambda: E.drift(SPHERE, ())),
    ("how", lambda: E.drift(FIXED, 3, "slide")),
    ("how", lambda: E.drift(E.arms(3), 3, "slide")),
    ("env", lambda: E.rejection(SPHERE)),
    ("env", lambda: E.rejection(fb.data.table(LOG, **OPTIONS))),
    *(("env", lambda wrap=wrap: wrap(REPLAYED, 2)) for name, wrap in E.WRAPPERS.items() if name != "rejection"),
]  # fmt: skip

# Recipes by themselves, and with an environment and a horizon.

BUDGET, SPEC, DISCOUNTED = ex.BUDGET, ex.SPHERE.spec, ex.DISCOUNTED
LONG, AWAY = dataclasses.replace(SPEC, max_norm=2.8), dataclasses.replace(SPEC, drops=True)
FORGETS, FEW = A.Forgetting(policy=A.UCB(), memory=DISCOUNTED), P.Users(4, per_batch=1)
WIDEST = dict(exploration_scale=1e38, theta_norm=1e38)
RAREST = A.Forgetting(policy=A.UCB(failure=1e-30), memory=P.Discounted(0.5))


def gossip(graph=networks.make("ring", ex.M), kind=A.Gossip, **options):  # noqa: B008
    return kind(graph=graph, **options)


def forgetting(policy):
    return A.Forgetting(policy=policy, memory=DISCOUNTED)


def greedy(**options):
    return A.Federated(**{"policy": A.Greedy(), "schedule": S.Geometric(1.5)} | options)


@fb.pytree
class Together(Bias):
    """A user-defined policy that scores all users at once."""

    index = fb.Policy.index

    def indices(self, key, t, prepared, offered):
        return offered.contexts[..., 0].T


STRANGE = [
    *(nx.DiGraph([(0, 1)]), nx.MultiGraph([(0, 1)]), nx.empty_graph(1), nx.Graph([(1, 2)]), nx.Graph([("a", 1)])),
    *(nx.Graph([(0.0, 1.0), (1.0, 2)]), nx.Graph([(False, True)]), nx.Graph([(0, 1), (1, 1)])),
    nx.Graph([(0, 1), (2, 3)]),
]
RECIPES = [
    ("name", lambda: networks.make("torus", 4)),
    *(("graph", lambda graph=graph: networks.network(graph, 1)) for graph in STRANGE),
    *(("gamma", lambda case=case: networks.network(*case)) for case in ((nx.path_graph(3), 3), (nx.empty_graph(3), 2))),
    ("gamma", lambda: gossip(kind=A.GossipFedUCB, gamma=3)),
    ("schedule", lambda: gossip(kind=A.GossipFedUCB, schedule=S.Every(3))),
    ("schedule", lambda: gossip(schedule=S.LogDet())),
    ("policy", lambda: gossip(kind=A.GossipFedUCB, policy=A.UCB())),
    ("policy", lambda: gossip(policy=FORGETS)),
    ("policy", lambda: forgetting(FORGETS)),
    ("policy", lambda: greedy(policy=A.UCB()).patient(GAP.spec, 100)),
    ("schedule", lambda: greedy(schedule=7).patient(GAP.spec, 100)),
    ("arms", lambda: A.PhasedElimination(arms=np.zeros((2, 3)))),
    ("arms", lambda: jax.eval_shape(
        lambda key: fb.rollout(ex.TABLE, A.dp_dpe(np.eye(2, ex.D), BUDGET), key, horizon=20), KEY)),  # of three arms
    *(("sums", lambda kind=kind: kind(A.DPSE(1.0)))  # which has epochs of its own
      for kind in (A.AdaCUCB, A.PhasedKLUCB, A.PhasedIMED, A.TopTwo, A.SequentialHalving)),
    *(("users", lambda make=make: make(8).sensitivity_sq(None)) for make in P.RELEASES.values()),
    ("epsilon", lambda: A.DistDPSE(1e-8, unit=P.Users(1000, 1))),  # less than 1e-9 for each sum
    ("unit", lambda: A.TruncatedSE(A.CDPSE(1.0, unit=FEW))),
    ("horizon", lambda: fb.simulate(ARMS, A.SE(), horizon=2**31 - 1, **RUN)),
    ("recommended", lambda: fb.simulate(ARMS, A.AdaCUCB(), horizon=20, **RUN, record={
        "recommended": R.final(R.recommended)})),
    *(("means", lambda means=means: A.regret_lower_bound(means, 1.0, 10))
      for means in ([0.5, 1.0], [0.5], [0.5, 1 - 1e-7], [1e-8, 2e-8])),
    *(("means", lambda means=means: A.characteristic_time(means, 1.0)) for means in ([0.5, 0.5], [0.5], [0.5, 1.0])),
]  # fmt: skip
BOUND = [  # the argument that is named, an algorithm, what it is bound to, and perhaps its horizon
    ("n_agents", A.fed_ucb(), dataclasses.replace(SPEC, n_agents=1)),
    ("policy", A.Federated(policy=FORGETS, schedule=S.LogDet()), SPEC),
    ("policy", A.Federated(policy=forgetting(Together())), SPEC),
    ("graph", gossip(nx.path_graph(3), A.GossipFedUCB), SPEC),
    ("graph", gossip(nx.path_graph(3)), SPEC),
    ("schedule", gossip(gamma=2, schedule=1), SPEC),
    *(("env", make(), SPEC) for make in (A.FCLUB, A.homo_dc, A.CLUB, A.SCLUB, A.Grouped)),
    ("arms", A.dp_dpe(np.eye(2), BUDGET), SPEC),
    ("dropouts", A.Federated(privacy=P.Mechanism(BUDGET, "input_perturbation", "secagg", dropouts=ex.M)), AWAY),
    *(("max_norm", one, LONG) for one in (PRIVATE, A.fed_ucb(BUDGET), gossip(privacy=BUDGET))),
    *(("max_norm", one, dataclasses.replace(ex.USERS.spec, max_norm=2.8))
      for one in (A.AsyncFederated(schedule=3, privacy=ex.VISIT), A.FCLUB(BUDGET))),
    # Machine words, horizons, noise that drowns everything, and numbers that float32 does not hold.
    ("horizon", A.SE(), ARMS.spec, 3),
    ("horizon", A.AdaCUCB(A.DistDPSE(1.0)), ARMS.spec, 3),
    ("horizon", A.SequentialHalving(), ARMS.spec, 10),
    *(("budget", A.SequentialHalving(budget=budget), ARMS.spec) for budget in (15, HORIZON + 1)),
    ("failure", A.TopTwo(A.CDPSE(1.0), failure=1e-4), ARMS.spec),
    ("failure", algorithm("Shuffle-DP-SE", radius="exact", failure=1e-6), ARMS.spec, 1000),
    ("first", A.ThompsonArms(1.0, first=100), ARMS.spec, 399),
    ("sums", A.TopTwo(A.RRSE(1.0)), ARMS.spec),  # flips have no law that is added to sums
    ("epsilon", A.RRSE(1e-8), ARMS.spec),
    ("epsilon", A.ThompsonArms(1e-9), ARMS.spec, 10**6),
    ("epsilon", algorithm("Dist-RDP-SE", 500.0, scale=200.0), ARMS.spec, 400_000),  # 25,600,000 steps a unit
    ("epsilon", algorithm("Dist-CDP-SE", 500.0, scale=200.0, radius="exact"), ARMS.spec, 400_000),
    ("epsilon", algorithm("CDP-SE", 1e-9, radius="exact"), ARMS.spec),  # noise of 10^9 steps
    ("epsilon", algorithm("DP-SE", 1e-9), ARMS.spec),
    ("bound", SharesRDPSE(1.0, scale=2.0**12), ARMS.spec, 2**24),
    ("n_arms", A.SE(), E.sphere(1, 1, 5).spec),
    *(("the confidence width", one, ex.USERS.spec, 64) for one in (A.CLUB(**WIDEST), A.LinUCB(policy=A.UCB(**WIDEST)))),
    ("the confidence width", A.Federated(policy=A.LogDetUCB(**WIDEST)), ENV.spec, 64),
    ("failure / S", A.Federated(policy=RAREST, schedule=5), ENV.spec, 10),
]  # fmt: skip

# Runs, sweeps, replaced parameters, and parts of one's own.

ELSEWHERE = PLAIN.bind(E.sphere(3, 4, 5, rewards="bernoulli").spec, 40)
GROUPED = A.Grouped(grouping=A.Mixture(), policy=A.UCB())


def update(self, k, belief, released):
    return released.bias


def index(self, key, t, belief, contexts):
    return contexts[:, 0]


def frozen(self, key, t, belief, contexts):
    return contexts[:, 0] * np.random.default_rng().normal()


def own(decorate=fb.pytree, **body):
    """A run of a policy of one's own."""
    return lambda: simulate(algo=A.Federated(policy=decorate(type("Own", (fb.Policy,), body))(), schedule=5))


class Undecorated(fb.Algorithm):
    def init(self, key, spec):
        return jnp.zeros(())


def gap(n_agents):
    return E.gap(n_agents, 4, 3)


def grid(values, env=ENV, algo=PRIVATE):
    return lambda: fb.sweep(env, {"it": algo}, grid=values, horizon=40, **RUN)


def recorded(what, algo=PLAIN, env=GAP):
    return lambda: simulate(env, algo, record=what if isinstance(what, list) else {"x": what})


def used(name, options=None):
    return lambda: executor(name, options).__enter__()


def forking():
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        sweep([PLAIN], store="here", executor=pool)


RUNS = [
    ("stride", lambda: simulate(stride=3)),
    ("path", lambda: fb.Result.load("x" * 300)),
    ("fields", lambda: P.Certificate.from_json(None)),
    ("cls", lambda: fb.pytree(None)),
    ("sead", lambda: simulate(sead=1)),
    ("key", lambda: simulate(key=None)),
    ("store", lambda: simulate(store="file/inside")),
    ("checkpoint's folder", lambda: simulate(checkpoint="/proc/none/run")),
    ("checkpoint", lambda: simulate(store="here", checkpoint="file")),
    ("part", lambda: sweep([PLAIN], store="here", part=(2, 2))),
    ("env", lambda: fb.rollout(ENV, A.SE(), KEY, horizon=5)),
    ("confidence", lambda: simulate(ex.USERS, A.LinUCB(policy=A.UCB(confidence="known_noise")))),
    ("horizon", lambda: simulate(ex.USERS, A.FCLUB(), horizon=2**24 + 1)),  # arrivals are counted in float32
    ("algo", lambda: sweep({"it": ELSEWHERE})),
    ("algo", lambda: jax.eval_shape(
        lambda bound: fb.rollout(ARMS, bound, KEY, horizon=300), A.SE().bind(ARMS.spec, 300))),
    ("the confidence width", lambda: simulate(algo=PRIVATE.replace(exploration_scale=3e38))),
    # Sweeps.
    *(("algos", lambda algos=algos: sweep(algos)) for algos in ([PRIVATE, PRIVATE], PRIVATE, {1: PRIVATE})),
    ("algos", lambda: sweep({"P(epsilon=1)": A.LinUCB(), "P": PRIVATE}, grid={"epsilon": [1, 2]})),
    *(("grid", grid(values)) for values in ({"epsilom": [1]}, {"policy.": [1]}, {"env.dim": [1]})),
    ("grid", grid({"std": [None]}, algo=PLAIN)),
    *(("grid['epsilon']", grid({"epsilon": values})) for values in ([], 1, [1, 1.0])),
    ("epsilon", grid({"epsilon": [1, -1]})),
    *(("a parameter in grid", grid({name: [1]})) for name in ("", 3)),
    *(("theta_norm", grid({path: [-1]}, algo=GROUPED)) for path in ("theta_norm", "policy.theta_norm")),
    ("failure", grid({"failure": [0.1], "policy.failure": [0.2]})),
    *(("env", grid(values, E.gap)) for values in ({"n_agents": [2], "dim": [3]}, {})),
    ("grid", grid({"agents": [2]}, E.gap)),
    ("n_agents", grid({"n_agents": [0]}, gap)),
    ("a name in env", grid({}, {1: GAP})),
    ("env", lambda: fb.simulate(Forgets(spec=SPHERE.spec), PLAIN, horizon=20, **RUN)),
    ("env", lambda: fb.simulate(Answers(spec=ARMS.spec), A.SE(), horizon=200, **RUN)),
    ("env.pull", lambda: fb.simulate(Talks(spec=SPHERE.spec), PLAIN, horizon=20, **RUN)),
    ("what env returns", grid({}, lambda: 5)),
    ("grid", grid({"epsilon": [1]}, lambda epsilon: 5)),
    ("grid", grid({"seed": [1]}, lambda seed: GAP)),
    ("grid", grid({"dim": [2], "env.dim": [3]}, functools.partial(E.gap, 2, 4))),
    # Replaced parameters.
    ("schedule", lambda: PRIVATE.replace(schedule=2000, learns_in_batch=True)),
    ("theta_norm", lambda: PRIVATE.replace(theta_norm=0.0, confidence="known_noise")),
    ("release", lambda: PRIVATE.replace(trust="local")),
    *((name, lambda name=name: PRIVATE.replace(**{name: 2.0}))
      for name in ("epsilom", "policy.epsilon", "get.epsilon", "", "policy.")),
    ("exploration_scale", lambda: PRIVATE.replace(**{"policy.exploration_scale": -1})),
    ("epsilon", lambda: PRIVATE.replace(**{"privacy.budget.epsilon": "much"})),
    ("epsilon", lambda: PRIVATE.replace(**{"epsilon": 2.0, "budget.epsilon": 2.0})),
    ("policy", lambda: PRIVATE.replace(policy=3)),
    ("theta_norm", lambda: GROUPED.replace(theta_norm=0.7)),  # of two parts
    ("theta_norm", lambda: GROUPED.takes("theta_norm")),
    *((name, lambda name=name: PRIVATE.bind(ENV.spec, 40).replace(**{name: 7})) for name in ("n_syncs", "batch")),
    # Policies and algorithms of one's own.
    ("policy", own(lambda kind: kind, update=update, index=index)),
    ("policy", own(update=update, index=index, mode="a", __annotations__={"mode": str})),
    ("policy", own(index=index)),
    ("policy", own(update=update)),
    ("Own.index", own(update=update, index=lambda *given: None)),
    ("Own.update", own(update=lambda *given: "a belief", index=index)),
    ("Own.bind", own(update=update, index=index, bind=lambda self, law: None)),
    *(("a policy's update", own(update=update, index=index, start=lambda self, dim, start=start: start(dim)))
      for start in (lambda dim: jnp.zeros(dim + 1), lambda dim: jnp.zeros(dim, int))),
    ("Short.noise", lambda: PRIVATE.replace(trust=Short).bind(ENV.spec, 40)),
    ("Single.contribution", lambda: PRIVATE.replace(statistic=Single(), policy=A.Thompson()).bind(ENV.spec, 40)),
    ("Own's act", own(update=update, index=frozen)),
    ("algorithm 'algorithm'", lambda: simulate(algo=Undecorated())),
    # Records.
    ("record", lambda: simulate(record=[R.arms])),
    *(("a name in record", lambda name=name: simulate(record={name: R.arms})) for name in ("a/b", "a['b']")),
    *(("record['x']", recorded(what)) for what in ("arms", lambda m: None, lambda m: len, lambda m: {})),
    ("stride", recorded(R.every(R.arms, 7))),
    ("arms", recorded(R.arms, A.SE(), ARMS)),
    ("estimates", recorded(R.estimates, A.CLUB(), ex.USERS)),
    ("record", lambda: fb.sweep(
        E.gap, [PLAIN], grid=dict(n_agents=[2, 3], n_arms=[3], dim=[2]), horizon=40, record={"a": R.arms}, **RUN)),
    # Who computes.
    ("executor", lambda: sweep([PLAIN], executor=map)),
    ("executor", forking),
    *(("executor", used(name)) for name in ("processes", "processes:-1", "slurm:4", "dask:nonsense://x")),
    ("slurm", used("slurm", {"jobs": 2, "quue": "long"})),
    *(("slurm's jobs", used("slurm", options)) for options in ({"jobs": 0, "cores": 2}, None)),
]  # fmt: skip


def binding(algo, spec, horizon=HORIZON):
    return lambda: algo.bind(spec, horizon)


REFUSED = [*WORLDS, *RECIPES, *((argument, binding(*given)) for argument, *given in BOUND), *RUNS]


@pytest.mark.parametrize(("argument", "ask"), REFUSED)
def test_refused(argument, ask, monkeypatch, tmp_path):
    for name in ("distributed", "dask_jobqueue"):
        pytest.importorskip(name) if argument in ("executor", "slurm", "slurm's jobs") else None
    monkeypatch.setattr(driver, "_compiled", lambda *given, **options: pytest.fail("it is compiled"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with refused(argument):
        ask()


@pytest.mark.parametrize(
    "call", [lambda x: simulate(key=jax.random.key(x)).regret, lambda x: simulate().regret[0, 0] + x]
)
def test_a_program_cannot_run_programs(call):
    with pytest.raises(TypeError, match=r"traced ones: .* use fb.rollout"):
        jax.jit(call)(jnp.uint32(3))


def test_errors_say_which_record():
    with pytest.raises(AttributeError) as caught:
        simulate(record={"fine": R.arms, "wrong": lambda moment: moment.offered.context})
    assert "record['wrong']" in caught.value.__notes__[0]
