"""What cannot be simulated, swept, recorded, replaced or handed out is refused by name, before anything compiles."""

import dataclasses
import functools
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BUDGET, ENV, PLAIN, PRIVATE, refused, simulate, sweep

import fedbandit_jax as fb
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.executors import executor
from fedbandit_jax.engine.prepare import expand

A, R = fb.algos, fb.record
GAP, ARMS, USERS = fb.envs.gap(2, 4, 3), fb.envs.arms(means=[0.9, 0.5]), fb.envs.clustered(4, 2, 2, n_arms=3, dim=3)
LONG = fb.envs.script(np.full((40, 3, 4, 5), 3.2 / np.sqrt(5)), np.zeros((40, 3, 4)))
ELSEWHERE = PLAIN.bind(fb.envs.sphere(3, 4, 5, rewards="bernoulli").spec, 40)
GROUPED = A.Grouped(grouping=A.Mixture(), policy=A.UCB())
LARGE = dict(exploration_scale=1e38, theta_norm=1e38)
SMALL = A.Forgetting(policy=A.UCB(failure=1e-30), memory=fb.privacy.Discounted(0.5))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agents(A.Federated):
    n_agents: int = 5


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
    return fb.envs.gap(n_agents, 4, 3)


def grid(values, env=ENV, algo=PRIVATE):
    return lambda: fb.sweep(env, {"it": algo}, grid=values, horizon=40, key=jax.random.key(0), seeds=1)


def recorded(what, algo=PLAIN, env=GAP):
    return lambda: simulate(env, algo, record=what if isinstance(what, list) else {"x": what})


def used(name, options=None):
    return lambda: executor(name, options).__enter__()


def forking():
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        sweep([PLAIN], store="here", executor=pool)


REFUSED = [  # the argument that is named, and what refuses it
    ("stride", lambda: simulate(stride=3)),
    ("sead", lambda: simulate(sead=1)),
    ("key", lambda: simulate(key=None)),
    ("max_norm", lambda: simulate(LONG)),
    ("checkpoint's folder", lambda: simulate(checkpoint="/proc/none/run")),
    ("checkpoint", lambda: simulate(store="here", checkpoint="file")),
    ("store", lambda: simulate(store="file/inside")),
    ("part", lambda: sweep([PLAIN], store="here", part=(2, 2))),
    # What does not fit an environment.
    ("env", lambda: simulate(ENV, A.CLUB())),
    ("env", lambda: fb.rollout(ENV, A.SE(), jax.random.key(0), horizon=5)),
    ("confidence", lambda: simulate(USERS, A.LinUCB(policy=A.UCB(confidence="known_noise")))),
    ("horizon", lambda: simulate(USERS, A.FCLUB(), horizon=2**24 + 1)),  # arrivals are counted in float32
    ("algo", lambda: sweep({"it": ELSEWHERE})),
    ("algo", lambda: jax.eval_shape(
        lambda bound: fb.rollout(ARMS, bound, jax.random.key(0), horizon=300), A.SE().bind(ARMS.spec, 300))),
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
    *(("env", grid(values, fb.envs.gap)) for values in ({"n_agents": [2], "dim": [3]}, {})),
    ("grid", grid({"agents": [2]}, fb.envs.gap)),
    ("n_agents", grid({"n_agents": [0]}, gap)),
    ("grid", grid({"n_agents": [2, 3]}, gap, Agents())),
    ("a name in env", grid({}, {1: GAP})),
    ("what env returns", grid({}, lambda: 5)),
    ("grid", grid({"epsilon": [1]}, lambda epsilon: 5)),
    ("grid", grid({"seed": [1]}, lambda seed: GAP)),
    ("grid", grid({"dim": [2], "env.dim": [3]}, functools.partial(fb.envs.gap, 2, 4))),
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
    # Numbers that float32 does not hold.
    ("the confidence width", lambda: simulate(algo=PRIVATE.replace(exploration_scale=3e38))),
    ("the confidence width", lambda: A.CLUB(**LARGE).bind(USERS.spec, 64)),
    ("the confidence width", lambda: A.LinUCB(policy=A.UCB(**LARGE)).bind(USERS.spec, 64)),
    ("the confidence width", lambda: A.Federated(policy=A.LogDetUCB(**LARGE)).bind(ENV.spec, 64)),
    ("failure / S", lambda: A.Federated(policy=SMALL, schedule=5).bind(ENV.spec, 10)),
    # Policies and algorithms of one's own.
    ("policy", own(lambda kind: kind, update=update, index=index)),
    ("policy", own(update=update, index=index, mode="a", __annotations__={"mode": str})),
    ("policy", own(index=index)),
    ("policy", own(update=update)),
    ("Own.index", own(update=update, index=lambda *given: None)),
    ("Own's act", own(update=update, index=frozen)),
    ("algorithm 'algorithm'", lambda: simulate(algo=Undecorated())),
    # Records.
    ("record", lambda: simulate(record=[R.arms])),
    *(("a name in record", lambda name=name: simulate(record={name: R.arms})) for name in ("a/b", "a['b']")),
    *(("record['x']", recorded(what)) for what in ("arms", lambda m: None, lambda m: "arms", lambda m: {})),
    ("stride", recorded(R.every(R.arms, 7))),
    ("arms", recorded(R.arms, A.SE(), ARMS)),
    ("estimates", recorded(R.estimates, A.CLUB(), USERS)),
    ("record", lambda: fb.sweep(
        fb.envs.gap, [PLAIN], grid=dict(n_agents=[2, 3], n_arms=[3], dim=[2]), horizon=40, key=jax.random.key(0),
        seeds=1, record={"a": R.arms})),
    # Who computes.
    ("executor", lambda: sweep([PLAIN], executor=map)),
    ("executor", forking),
    *(("executor", used(name)) for name in ("processes", "processes:-1", "slurm:4", "dask:nonsense://x")),
    ("slurm", used("slurm", {"jobs": 2, "quue": "long"})),
    *(("slurm's jobs", used("slurm", options)) for options in ({"jobs": 0, "cores": 2}, None)),
]  # fmt: skip


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


@pytest.mark.parametrize(
    ("algo", "changes", "name"),
    [
        (PRIVATE, {"privacy": None}, "UCB"),
        (PRIVATE, {"epsilon": 2.0}, "Private-FedLinUCB"),
        (A.Federated(name="mine"), {"policy": A.Greedy()}, "mine"),
        (A.FCLUB(BUDGET), {"budget": None}, "FCLUB-DC"),
        (A.homo_dc(BUDGET), {"alpha_1": 1.0}, "CDP-FCLUB-DC"),
        (A.LinUCB(), {"failure": 0.2}, "LinUCB"),
    ],
)
def test_a_name_does_not_outlive_what_it_says(algo, changes, name):
    assert algo.replace(**changes).name == name


def test_what_is_replaced():
    """A part before its parameters, and a parameter of two parts by its path."""
    budget = fb.privacy.Budget(1.0, 1e-3)
    changed = PRIVATE.replace(epsilon=2.0, budget=budget, exploration_scale=0.3, policy=A.UCB(failure=0.2))
    assert changed.privacy.budget == fb.privacy.Budget(2.0, 1e-3)
    assert changed.policy == A.UCB(failure=0.2, exploration_scale=0.3)
    for part in ("grouping", "policy"):
        changed = GROUPED.replace(**{f"{part}.theta_norm": 0.7})
        assert getattr(changed, part).theta_norm == 0.7
        assert dataclasses.replace(changed, **{part: getattr(GROUPED, part)}) == GROUPED
    (one,) = expand(gap, {"own": Agents()}, {"env.n_agents": [2], "algo.n_agents": [7]}).values()
    assert (one.env.spec.n_agents, one.algo.n_agents) == (2, 7)
    for name in ("epsilon", "budget.epsilon", "privacy.budget.epsilon"):
        assert PRIVATE.takes(name)
        assert PRIVATE.replace(**{name: 2.0}).privacy == fb.privacy.Mechanism(dataclasses.replace(BUDGET, epsilon=2.0))
    for algo in (PLAIN, A.LinUCB()):
        assert not algo.takes("epsilon")
