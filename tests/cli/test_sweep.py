"""`fedbandit sweep`: what a file may say, what is refused and in which words, and what is computed."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import networkx as nx
import numpy as np
import pytest
from helpers import BUDGET, ENV, PLAIN, PRIVATE

import fedbandit_jax as fb
from fedbandit_jax import cli
from fedbandit_jax.cli import _calls, _configuration, main
from fedbandit_jax.engine import simulation
from fedbandit_jax.engine.grid import expand
from fedbandit_jax.engine.identity import describe

EXAMPLE = Path(__file__).parents[2] / "experiments" / "sweep.toml"
SMALL = """
horizon = 40
seeds = 3
[environment]
type = "sphere"
n_agents = 3
n_arms = 4
dim = 5
[algorithms.plain]
type = "fed_lin_ucb"
schedule = 5
[algorithms.ours]
type = "private_fed_lin_ucb"
schedule = 5
privacy = { type = "Budget", epsilon = 1.0, delta = 0.1 }
[grid]
epsilon = [1.0, 5.0]
"""  # the small run of `helpers`
OURS = 'horizon = 40\nseeds = 3\nalgorithms.ours.type = "fed_lin_ucb"\n'


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes the file sweep.toml of the working folder."""
    monkeypatch.chdir(tmp_path)

    def write(text=SMALL):
        Path("sweep.toml").write_text(text)
        return "sweep.toml"

    return write


def read(path, *changes):
    return _configuration.read(Path(path), changes).arguments


# What a file says.


def test_the_example_says_what_its_comments_say():
    asked = read(EXAMPLE)
    budget = fb.privacy.Budget(1.0, 1e-3)
    blt = fb.privacy.Mechanism(budget, release="blt")
    sharp = fb.algos.UCB(confidence="known_noise", regularizer="project")
    ours = fb.privacy.Mechanism(budget, release="blt", trust="secagg")
    make = fb.algos.private_fed_lin_ucb
    assert asked.pop("algos") == {
        "plain": fb.algos.fed_lin_ucb(schedule=25),
        "tree": make(budget),
        "ours": make(ours, policy=sharp),
        "rarely": make(blt, schedule=fb.schedules.Geometric(1.5, first=25)),
    }
    assert describe(asked.pop("env")(n_agents=40)) == describe(fb.envs.gap(40, 10, 4))
    assert np.array_equal(jax.random.key_data(asked.pop("key")), jax.random.key_data(jax.random.key(0)))
    assert asked == dict(grid={"n_agents": [10, 40], "epsilon": [1.0, 5.0]}, horizon=2000, seeds=8, stride="log")
    assert set(_configuration.read(EXAMPLE).slurm) == {"jobs", "cores", "memory", "walltime"}


def test_the_example_runs_in_all_its_configurations():
    asked = read(EXAMPLE)
    found = expand(asked["env"], asked["algos"], asked["grid"])
    assert len(found) == 2 + 3 * 4
    for one in found.values():
        one.algo.bind(one.env.spec, 2000)


def test_parts_of_all_kinds(file, monkeypatch):
    def classification(name):
        assert name == "digits"
        return table

    eye = np.eye(4, dtype=np.float32)
    table = fb.data.Queries(features=eye, query_sizes=np.array([1, 3]), theta=eye[0], title="toy")
    monkeypatch.setattr(fb.data, "classification", classification)
    text = """
    horizon = 100
    seeds = { from = 5, to = 8 }
    key = 7
    [environments.one]
    type = "replay"
    n_agents = 2
    data = { type = "classification", name = "digits" }
    [environments.two]
    type = "arms"
    means = [0.2, 0.5]
    [algorithms.gossip]
    type = "GossipFedUCB"
    graph = { type = "ring", n_agents = 5 }
    schedule = { type = "LogDet", threshold = 3.0 }
    policy = { type = "LogDetUCB", failure = 0.1 }
    [algorithms.thompson]
    type = "Federated"
    policy = { type = "Thompson", scale = 0.1 }
    [algorithms.thompson.privacy]
    type = "Mechanism"
    budget = [{ type = "Budget", epsilon = 1, delta = 0.1 }, { type = "Budget", epsilon = 2, delta = 0.1 }]
    [algorithms.alike]
    type = "homo_dc"
    alpha_1 = inf
    visits = 2
    [grid]
    schedule = [5, { type = "Every", batch = 7 }]
    """
    asked = read(file(text))
    assert asked["seeds"] == range(5, 8)
    assert int(jax.random.key_data(asked["key"])[-1]) == 7
    one, two = (describe(env) for env in asked["env"].values())
    assert one == describe(fb.envs.replay(**table.arguments(), n_agents=2))
    assert two == describe(fb.envs.arms(means=[0.2, 0.5]))
    gossip, thompson, alike = asked["algos"].values()
    assert nx.utils.graphs_equal(gossip.graph, nx.cycle_graph(5))
    assert (gossip.schedule.threshold, gossip.policy.failure) == (3.0, 0.1)
    assert describe(thompson.policy) == describe(fb.algos.Thompson(scale=0.1))
    assert [budget.epsilon for budget in thompson.privacy.budgets] == [1, 2]
    assert alike == fb.algos.homo_dc(alpha_1=math.inf, visits=2)
    assert asked["grid"] == {"schedule": [5, fb.schedules.Every(7)]}


RETURNS = [
    "environment.returning={n_users=10, arrivals=[1, 1, 1, 1, 1, 1, 1, 1, 1, 2]}",
    "algorithms.ours.privacy={type='Mechanism', budget={type='Budget', epsilon=1, delta=0.1}, release={type='Banded', "
    "bands=3}, unit={type='Users', visits=16, per_batch=1}}",
]


def test_users_who_return(file):
    """A table `returning` in the environment has the arguments of `fb.envs.returning`; a unit may be `Users`."""
    asked = read(file(), *RETURNS, "unit.visits=4", "n_agents=2")
    env = fb.envs.returning(fb.envs.sphere(2, 4, 5), 10, [*[1] * 9, 2])
    assert describe(asked["env"]) == describe(env)
    *_, ours = expand(asked["env"], asked["algos"], asked["grid"]).values()
    assert ours.algo.privacy.unit == fb.privacy.Users(4, per_batch=1)
    assert ours.algo.privacy.release == fb.privacy.Banded(3)
    assert ours.algo.certificate(ours.env.spec, 40).unit.endswith("silos leave out what is beyond")
    grid = read(file(), *RETURNS, "grid.n_agents=[2, 3]")
    assert describe(grid["env"](n_agents=2)) == describe(env)


def test_environments_are_wrapped(file):
    """A table with the name of a wrapper has its arguments; what stands later goes around what stands before."""
    sphere = fb.envs.sphere(2, 4, 5)
    moves, lifts = "environment.drift={when=[5, 9]}", "environment.lift={random_features=6}"
    asked = read(file(), moves, lifts, "n_agents=2")
    assert describe(asked["env"]) == describe(fb.envs.lift(fb.envs.drift(sphere, (5, 9)), 6))
    asked = read(file(), lifts, moves, "environment.returning.n_users=3", "n_agents=2")
    assert describe(asked["env"]) == describe(fb.envs.returning(fb.envs.drift(fb.envs.lift(sphere, 6), (5, 9)), 3))
    assert set(fb.envs.WRAPPERS) >= {"returning", "drift", "lift"}


def test_silos_that_lie(file):
    """False rewards are a table of the environment, and lies to the server one of an algorithm."""
    text = """
horizon = 40
seeds = 3
[environment]
type = "sphere"
n_agents = 4
n_arms = 4
dim = 5
[environment.corrupt]
silos = [1]
attack = "collude"
[algorithms.ours]
type = "fed_lin_ucb"
schedule = 5
learns_in_batch = false
aggregate = "median"
liars = { type = "Liars", attack = "large" }
[grid]
silos = [0.0, 0.5]
"""
    asked = read(file(text))
    assert describe(asked["env"]) == describe(fb.envs.corrupt(fb.envs.sphere(4, 4, 5), [1], "collude"))
    made = [one.algo for one in expand(asked["env"], asked["algos"], asked["grid"]).values()]
    assert [algo.liars for algo in made] == [fb.privacy.Liars(0.0, "large"), fb.privacy.Liars(0.5, "large")]
    assert {algo.aggregate for algo in made} == {"median"}


def test_all_parts_there_are_have_a_type():
    parts = _calls._parts()
    recipes = [value for room in (fb.algos, fb.schedules) for value in vars(room).values() if isinstance(value, type)]
    wanted = {kind.__name__ for kind in recipes if issubclass(kind, (fb.Policy, fb.schedules.Schedule))}
    assert wanted - {"Schedule", "Fixed"} <= set(parts)  # bases of your own
    assert {"Users", "Liars", "Decaying", "Banded", "BandMF", "MultiBlt", "Discounted", "Window"} <= set(parts)
    assert {make.__name__ for make in fb.algos.ALGORITHMS.values()} == set(_calls._algorithms())
    for name, make in fb.envs.ENVIRONMENTS.items():
        assert make.__name__ == name


def test_a_byte_order_mark(file):
    assert read(file("\ufeff" + SMALL))["horizon"] == 40


def test_changes(file):
    changes = ["horizon=70", "grid.epsilon = [2]", 'algorithms."our own".type="fed_lin_ucb"', "stride=10"]
    changes += ["algorithms.ours.privacy={type='Mechanism', budget={type='Budget', epsilon=3, delta=0.2}}"]
    changes += ["algorithms.plain.schedule=9"]
    asked = read(file(), *changes)
    assert (asked["horizon"], asked["grid"], asked["stride"]) == (70, {"epsilon": [2]}, 10)
    assert asked["algos"]["our own"] == fb.algos.fed_lin_ucb()
    assert asked["algos"]["ours"].privacy.budget == fb.privacy.Budget(3, 0.2)
    assert asked["algos"]["plain"].schedule.batch == 9
    changes = ["grid.policy.theta_norm=[0.5]", "grid.privacy.budget.epsilon=[2]", "grid.env.n_arms=[3]"]
    assert read(file(), *changes)["grid"] == {
        **{"epsilon": [1, 5], "policy.theta_norm": [0.5], "privacy.budget.epsilon": [2], "env.n_arms": [3]}
    }
    loose = read(file(), "n_arms=3", "rewards=bernoulli", "failure=0.2", "algorithms.plain.policy.theta_norm=0.7")
    assert (loose["env"].spec.n_arms, loose["env"].rewards.law) == (3, "bernoulli")
    assert loose["grid"] == {"epsilon": [1, 5], "failure": [0.2]}
    assert loose["algos"]["plain"] == PLAIN.replace(theta_norm=0.7)
    assert list(read(file(), "compare=['ours']")["algos"]) == ["ours"]
    plain = read(file(), "compare=['plain']")
    assert (list(plain["algos"]), plain["grid"]) == (["plain"], {})  # epsilon is of what is not compared
    assert cli.parse(["sweep", "sweep.toml", "--set", "a=1", "--set", "b=2"]).set == ("a=1", "b=2")


# What is refused.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("horizont=4", "[grid]: keys must be parameters of [environment] or of an algorithm, got 'horizont': did you "
         "mean 'horizon'?"),
        ("policy.theta_nrom=1", "got 'policy.theta_nrom': did you mean 'policy.theta_norm'?"),
        ("policy.theta_norm=-1", "[grid]: theta_norm must be finite and >= 0, got -1"),
        ("grid.ours.epsilon=[1]", "[grid]: keys must be parameters of [environment] or of an algorithm, got 'ours.eps"),
        ("compare=['ours', 'plane']", "at the top: compare must name some of plain; ours, got 'plane': did you mean"),
        ("compare=[]", "at the top: compare must be a list of at least one label, each only once, got []"),
        ("compare=['ours', 'ours']", "at the top: compare must be a list of at least one label, each only once, got"),
        ("algorithms.\"\".type='LinUCB'", "[algorithms]: labels must have at least one character, got ''"),
        ("algorithms.plain.policy.failur=0.1", "got 'policy.failur': did you mean 'policy.failure'?"),
        ("algorithms.plain.policy.failure=2", "[algorithms.plain]: failure must be in (0, 1), got 2"),
        ("key=1.5", "at the top: key must be an integer >= 0, got 1.5"),
        ("horizon=0", "at the top: horizon must be >= 1, got 0"),
        ("horizon='long'", "at the top: horizon must be an integer >= 1, got 'long'"),
        ("stride=7", "at the top: stride must divide the horizon 40, got 7"),
        ("seeds={from=5, to=5}", "at the top: seeds.to must be >= 6, got 5"),
        ("seeds={first=5}", "at the top: seeds must be a number, a list, or a table of from and to, got"),
        ("seeds=[1, 1]", "at the top: seeds must be distinct integers"),
        ("key=-1", "at the top: key must be >= 0, got -1"),
        ("environment=3", "[environment]: it must be a table, got 3"),
        ("environments.b.type='gap'", "at the top: one of [environment] and [environments.NAME] must be given"),
        ("environment.type='spere'", "[environment]: type must be one of sphere, gap, replay, arms, clustered, "
         "community, table, insteval, star, films, open_bandit, got 'spere': did you mean 'sphere'?"),
        ("environment.n_agent=3", "[environment]: keys must be parameters of sphere, got 'n_agent': did you"
         " mean 'n_agents'?"),
        ("environment.xyzzy=3", "got 'xyzzy', but they are contexts, dim, n_agents, n_arms, noise_std, rewards"),
        ("environment={type='sphere', n_arms=3}", "[environment]: n_agents and dim must be given for sphere, "
         "got n_arms"),
        ("environment.n_arms=0", "[environment]: n_arms must be >= 1, got 0"),
        ("environment.returning=3", "[environment.returning]: it must be a table, got 3"),
        ("environment.returning={}", "[environment.returning]: n_users must be given for returning, got nothing"),
        ("environment.returning.users=3", "[environment.returning]: keys must be parameters of returning, got 'users'"),
        ("environment.returning.n_users=0", "n_users must be >= 1, got 0"),
        ("environment.returning.n_users=9", "unit must say what is protected, as the 9 users of this environment"),
        ("environment.drift={}", "[environment.drift]: when must be given for drift, got nothing"),
        ("environment.drift.when=0", "when must be >= 1, got 0"),
        ("environment.lift.random_features=3", "random_features must be even"),
        ("environment={type='replay', data={type='Budget', epsilon=1, delta=0.1}}", "[environment]: data "
         "must be a data set, got Budget("),
        ("environment={type='replay', data={type='mslr', path='nowhere'}}", "[environment.data]: path must"),
        ("algorithms.plain.type=1", "[algorithms.plain]: type must be one of LinUCB, Federated, "),
        ("algorithms.plain.type='fedlinucb'", "got 'fedlinucb': did you mean 'fed_lin_ucb'?"),
        ("algorithms.plain.shedule=3", "[algorithms.plain]: keys must be parameters of fed_lin_ucb, got "
         "'shedule': did you mean 'schedule'?"),
        ("algorithms.plain.schedule=0", "[algorithms.plain]: schedule must be >= 1, got 0"),
        ("algorithms.ours.privacy.epsilon=-1", "[algorithms.ours.privacy]: epsilon must be finite and > 0, "),
        ("algorithms.ours.privacy.typ='x'", "[algorithms.ours.privacy]: keys must be parameters of Budget, "),
        ("algorithms.ours.privacy={epsilon=1}", "[algorithms.ours.privacy]: type must be one of Budget, "),
        ("algorithms.plain={type='homo', budgt=1}", "parameters of homo, got 'budgt': did you mean 'budget'?"),
        ("grid=[1]", "[grid]: it must be a table, got [1]"),
        ("grid.epsilom=[1]", "[grid]: keys must be parameters of [environment] or of an algorithm, got "
         "'epsilom': did you mean 'epsilon'?"),
        ("grid.policy.theta_nrom=[1]", "got 'policy.theta_nrom': did you mean 'policy.theta_norm'?"),
        ("grid.epsilon=1", "[grid]: epsilon must be a list of at least one value, got 1"),
        ("grid.epsilon=[]", "[grid]: epsilon must be a list of at least one value, got []"),
        ("grid.epsilon=[1, -1]", "[grid]: epsilon must be finite and > 0, got -1"),
        ("grid.n_agents=[0]", "[environment]: n_agents must be >= 1, got 0"),
        ("grid.n_agents=[3, 0]", "[grid]: n_agents must be >= 1, got 0"),
        ("horizon", "--set must be KEY=VALUE with a value of TOML, got 'horizon'"),
        ("environment.type='gap", "--set must be KEY=VALUE with a value of TOML, got "),
        ("=3", "--set must be KEY=VALUE"),
        ("horizon.x=3", "--set must name a key of a table, got 'horizon.x=3': horizon is 40"),
        ("horizon=3\nseeds=1", "--set must be KEY=VALUE"),
    ],
)  # fmt: skip
def test_changes_that_are_refused(change, words, file, capsys):
    assert main(["sweep", file(), "--set", change]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith(("fedbandit: sweep.toml, ", "fedbandit: --set "))
    assert error.count("\n") == 1
    assert not list(Path().rglob("*.npz"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("horizon = ", "sweep.toml: it must be TOML: Invalid value (at end of document)"),
        ("", "sweep.toml, at the top: horizon and seeds and algorithms must be given, got nothing"),
        (OURS, "sweep.toml, at the top: one of [environment] and [environments.NAME] must be given, got neither"),
        (
            OURS + "[environments]\nx.type = 'gap'",
            "sweep.toml, [environments.x]: n_agents and n_arms and dim must be given",
        ),
    ],
)
def test_files_that_are_refused(text, words, file, capsys):
    assert main(["sweep", file(text)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--part 2/2", "--part must be I/N with integers 0 <= I < N, got 2/2"),
        ("--part 1", "--part must be I/N with integers 0 <= I < N, got 1"),
        ("--part -1/2", "--part"),
        ("--part 0/2 --name mine", "--name applies only to the whole sweep, without --part, got mine"),
        ("--name a/b", "--name must be a name for a file, without a folder, got 'a/b'"),
        ("--executor=", "--executor must be a string of at least one character, got ''"),
        ("--name=", "--name must be a name for a file, without a folder, got ''"),
        (f"--name {'x' * 300}", "--name must have at most 200 bytes, got 'xxx"),
        ("--executor magic", "--executor must be one of processes:N, dask:ADDRESS, slurm, got magic"),
        ("--executor processes:0", "--executor must be processes:N with an integer N >= 1, got processes:0"),
        ("--executor dask:", "--executor must be one of processes:N, dask:ADDRESS, slurm, got dask:"),
        ("--store=", "--store must name a file or folder, got ''"),
        ("--store /proc/none", "--store must be a folder that can be written to, got '/proc/none'"),
        ("--out /proc/none", "--out must be a folder that can be written to, got '/proc/none'"),
    ],
)
def test_flags_that_are_refused(flags, words, file, capsys):
    try:
        code = main(["sweep", file(), *flags.split()])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert words in capsys.readouterr().err
    assert main(["sweep", "nowhere.toml"]) == 2
    assert capsys.readouterr().err == "fedbandit: nowhere.toml: it cannot be read: No such file or directory\n"


# What is computed.


def test_parts_of_a_sweep_are_the_sweep(file, tmp_path, capsys):
    """A job array of two tasks, the second of which comes first, and a call that gathers: the bits of a sweep alone."""
    command = ["sweep", file(), "--out", "out", "--name", "mine"]
    options = dict(grid={"epsilon": [1.0, 5.0]}, horizon=40, key=jax.random.key(0), seeds=3)
    alone = fb.sweep(ENV, {"plain": PLAIN, "ours": PRIVATE}, store=tmp_path / "alone", **options)
    for i, runs in ((1, 6), (0, 3), (0, 0)):
        assert main([*command[:4], "--part", f"{i}/2"]) == 0
        assert capsys.readouterr().out == f"part {i}/2: {runs} runs computed, in out/store\n"
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "\n9 runs, 3 configurations under 3 seeds: 2 pieces, 0 of them computed now, in " in printed
    assert "ours(epsilon=5.0)" in printed
    found = fb.Result.load("out/mine.npz")
    np.testing.assert_array_equal(found.regret, alone.regret)
    assert found.config == alone.config
    assert found.provenance["configuration"] == {"file": "sweep.toml", "text": SMALL, "set": []}


def test_what_the_command_asks_of_sweep(file, monkeypatch, capsys):
    """Its store, its executor, and a name that stands for the file and the changes."""
    calls = []

    def sweep(**options):
        calls.append(options)
        result = fb.simulate(ENV, PLAIN, horizon=40, key=jax.random.key(0), seeds=3)
        account = dict(pieces=1, computed=1, seconds=0.0)
        return fb.Result(**{**vars(result), "provenance": {**result.provenance, **account}})

    monkeypatch.setattr(simulation, "sweep", sweep)
    for flags in ([], ["--set", "horizon=50"], ["--store", "here", "--executor", "processes:1"]):
        assert main(["sweep", file(), *flags]) == 0
    one, other, third = calls
    assert (one["store"], one["executor"], one["throw"]) == (Path("results/store"), None, False)
    assert (one["horizon"], other["horizon"]) == (40, 50)
    assert third["store"] == Path("here")
    assert third["executor"]._max_workers == 1
    assert one["algos"]["ours"].privacy.budget == BUDGET
    names = sorted(path.name for path in Path("results").glob("*.npz"))
    assert len(names) == 2
    assert all(name.startswith("sweep-") and len(name) == len("sweep-12345678.npz") for name in names)
    assert [
        json.loads(json.dumps(fb.Result.load(f"results/{name}").provenance))["configuration"]["set"] for name in names
    ]
    monkeypatch.setattr(simulation, "sweep", failing)
    assert main(["sweep", "sweep.toml", "--executor", "processes:1"]) == 2
    assert capsys.readouterr().err == "fedbandit: 1 of 2 pieces failed at a worker\n"
    with pytest.raises(RuntimeError):
        main(["sweep", "sweep.toml"])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_all_processes(file, number, code):
    """Nothing is left behind but whole files, and the same command goes on."""
    command = [sys.executable, "-m", "fedbandit_jax", "sweep", file(), "--set", "seeds=100", "--out", "out"]
    command += ["--executor", "processes:2"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while run.poll() is None and len(list(Path("out/store").rglob("seeds_*.npz"))) < 2:
        time.sleep(0.05)
    assert run.poll() is None
    if number == signal.SIGINT:  # as Ctrl-C does
        os.killpg(run.pid, number)
    else:
        run.send_signal(number)
    error = run.communicate(timeout=120)[1]
    assert (run.returncode, error.count("Traceback")) == (code, 0), error
    assert "\nfedbandit: stopped; the same command continues where it was\n" in error
    before = time.monotonic()
    while left := [pid for pid in Path("/proc").glob("[0-9]*") if session(pid) == run.pid]:
        assert time.monotonic() < before + 30, left
        time.sleep(0.1)
    there = len(list(Path("out/store").rglob("seeds_*.npz")))
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 0 < there < 39
    assert "26 pieces" in done
    assert "26 of them" not in done


def session(folder):
    """Of a process; None if it has ended."""
    try:
        state, _, _, its = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state == "Z" else int(its)


def failing(**options):
    raise RuntimeError("1 of 2 pieces failed at a worker")
