"""`fedbandit sweep`: the contents of a file, refusals, and runs."""

import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import networkx as nx
import numpy as np
import psutil
import pytest
from command_line import SWEEP
from handmade import made
from helpers import BUDGET, PLAIN

import fedbandit_jax as fb
from fedbandit_jax import cli
from fedbandit_jax.cli import _configuration, main
from fedbandit_jax.engine import simulation
from fedbandit_jax.engine.identity import describe
from fedbandit_jax.engine.prepare import expand

EXAMPLE = Path(__file__).parents[2] / "experiments" / "sweep.toml"
OURS = 'horizon = 40\nseeds = 3\nalgorithms.ours.type = "fed_lin_ucb"\n'


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes the file sweep.toml of the working folder."""
    monkeypatch.chdir(tmp_path)

    def write(text=SWEEP):
        Path("sweep.toml").write_text(text)
        return "sweep.toml"

    return write


def read(path, *changes):
    return _configuration.read(Path(path), changes).arguments


# What a file says.


A, E, P, S = fb.algos, fb.envs, fb.privacy, fb.schedules
SPHERE, B1 = E.sphere(2, 4, 5), P.Budget(1.0, 0.1)
TOY = fb.data.Queries(np.eye(4, dtype=np.float32), np.array([1, 3]), np.eye(4, dtype=np.float32)[0], "toy")
RETURNS = "environment.returning={n_users=10, arrivals=[1, 1, 1, 1, 1, 1, 1, 1, 1, 2]}"
DRIFT = "environment.drift={when=[5, 9]}"
WORLDS = {  # changes -> environment; a wrapper that stands later goes around what stands before
    ("environment={type='replay', n_agents=2, data={type='classification', name='digits'}}",): (
        lambda: E.replay(**TOY.arguments(), n_agents=2)
    ),
    (RETURNS,): lambda: E.returning(SPHERE, 10, [*[1] * 9, 2]),
    (DRIFT, "environment.returning.n_users=3"): lambda: E.returning(E.drift(SPHERE, (5, 9)), 3),
}
BUDGET_1, USERS = "{type='Budget', epsilon=1, delta=0.1}", "{type='Users', visits=16, per_batch=1}"
LIARS = "{type='Liars', silos=0.5, attack='large'}"
RECIPES = {  # a table of an algorithm -> recipe
    "{type='GossipFedUCB', graph={type='ring', n_agents=5}, schedule={type='LogDet', threshold=3.0}}": (
        A.GossipFedUCB(graph=nx.cycle_graph(5), schedule=S.LogDet(3.0))
    ),
    f"{{type='Federated', policy={{type='Thompson', scale=0.1}}, privacy={{type='Mechanism', budget=[{BUDGET_1}]}}}}": (
        A.Federated(policy=A.Thompson(scale=0.1), privacy=P.Mechanism([B1]))
    ),
    "{type='homo_dc', alpha_1=inf, visits=2}": A.homo_dc(alpha_1=math.inf, visits=2),
    f"{{type='private_fed_lin_ucb', privacy={{type='Mechanism', budget={BUDGET_1}, "
    f"release={{type='BandMF', bands=3, users={USERS}}}, unit={USERS}}}}}": (
        A.private_fed_lin_ucb(P.Mechanism(B1, P.BandMF(3, P.Users(16, 1)), unit=P.Users(16, 1)))
    ),
    f"{{type='fed_lin_ucb', learns_in_batch=false, aggregate='median', liars={LIARS}}}": (
        A.fed_lin_ucb(learns_in_batch=False).replace(aggregate="median", liars=P.Liars(0.5, "large"))
    ),
}


def test_a_table_is_the_call_that_it_names(file, monkeypatch):
    def classification(name):
        return {"digits": TOY}[name]

    monkeypatch.setattr(fb.data, "classification", classification)
    small = file(SWEEP.replace("n_agents = 3", "n_agents = 2"))
    for changes, wanted in WORLDS.items():
        assert describe(read(small, "grid={}", *changes)["env"]) == describe(wanted())
    for text, recipe in RECIPES.items():
        found = read(small, "grid={}", f"algorithms.one={text}")["algos"]["one"]
        assert describe(found) == describe(recipe)


def test_parts_of_all_kinds(file):
    """Several environments, stretches of seeds, and parts as values of a grid."""
    text = OURS.replace("seeds = 3", "seeds = {from = 5, to = 8}\ngrid.schedule = [5, {type='Every', batch=7}]")
    asked = read(file(f"key = 7\n{text}environments.one.type = 'arms'\nenvironments.two = {{type='arms', n_arms=3}}"))
    assert [env.spec.n_arms for env in asked["env"].values()] == [10, 3]
    assert (asked["seeds"], asked["grid"]) == (range(5, 8), {"schedule": [5, fb.schedules.Every(7)]})
    assert int(jax.random.key_data(asked["key"])[-1]) == 7


def test_the_example_runs_in_all_its_configurations():
    asked = read(EXAMPLE)
    assert describe(asked["env"](n_agents=40)) == describe(fb.envs.gap(40, 10, 4))
    assert (asked["horizon"], asked["seeds"], asked["stride"]) == (2000, 8, "log")
    assert set(_configuration.read(EXAMPLE).slurm) == {"jobs", "cores", "memory", "walltime"}
    found = expand(asked["env"], asked["algos"], asked["grid"])
    assert len(found) == 2 + 3 * 4  # of 10 and 40 agents, under two budgets
    assert {one.algo.bind(one.env.spec, 2000).spec.n_agents for one in found.values()} == {10, 40}


def test_all_parts_there_are_have_a_type():
    parts = _configuration.parts()
    recipes = [value for room in (fb.algos, fb.schedules) for value in vars(room).values() if isinstance(value, type)]
    wanted = {kind.__name__ for kind in recipes if issubclass(kind, (fb.Policy, fb.schedules.Schedule))}
    assert wanted - {"Schedule", "Fixed"} <= set(parts)  # bases of user-defined ones
    assert {"Users", "Liars", "Decaying", "BandMF", "BISR", "Discounted"} <= set(parts)
    assert {make.__name__ for make in fb.algos.ALGORITHMS.values()} == set(_configuration.algorithms())
    for name, make in fb.envs.ENVIRONMENTS.items():
        assert make.__name__ == name


def test_changes(file):
    assert read(file("\ufeff" + SWEEP))["horizon"] == 40  # after a byte order mark
    changes = ["horizon=70", "grid.epsilon = [2]", 'algorithms."our own".type="fed_lin_ucb"', "stride=10"]
    changes += ["algorithms.ours.privacy={type='Mechanism', budget={type='Budget', epsilon=3, delta=0.2}}"]
    changes += ["algorithms.plain.schedule=9"]
    asked = read(file(), *changes)
    assert (asked["horizon"], asked["grid"], asked["stride"]) == (70, {"epsilon": [2]}, 10)
    assert asked["algos"]["our own"] == fb.algos.fed_lin_ucb()
    assert asked["algos"]["ours"].privacy.budget == fb.privacy.Budget(3, 0.2)
    assert asked["algos"]["plain"].schedule.batch == 9
    changes = ["grid={}", "grid.policy.theta_norm=[0.5]", "grid.privacy.budget.epsilon=[2]", "grid.env.n_arms=[3]"]
    assert read(file(), *changes)["grid"] == {
        **{"policy.theta_norm": [0.5], "privacy.budget.epsilon": [2], "env.n_arms": [3]}
    }
    loose = read(file(), "n_arms=3", "rewards=bernoulli", "failure=0.2", "algorithms.plain.policy.theta_norm=0.7")
    assert (loose["env"].spec.n_arms, loose["env"].rewards.law) == (3, "bernoulli")
    assert loose["grid"] == {"epsilon": [1, 5], "failure": [0.2]}
    assert loose["algos"]["plain"] == PLAIN.replace(theta_norm=0.7)
    assert list(read(file(), "compare=['ours']")["algos"]) == ["ours"]
    plain = read(file(), "compare=['plain']")
    assert (list(plain["algos"]), plain["grid"]) == (["plain"], {})  # only the other algorithm has epsilon
    grid = read(file(), RETURNS, "grid.n_agents=[2, 3]")
    assert describe(grid["env"](n_agents=2)) == describe(E.returning(SPHERE, 10, [*[1] * 9, 2]))
    assert cli.parse(["sweep", "sweep.toml", "--set", "a=1", "--set", "b=2"]).set == ("a=1", "b=2")


# What is refused.

REFUSED = """
horizont=4 | horizon='long' | horizon | horizon.x=3 | =3 | key=1.5 | key=-1 | stride=7 | seeds=[1, 1] | seeds={first=5}
seeds={from=5, to=5} | compare=[] | compare=['ours', 'plane'] | compare=['ours', 'ours'] | algorithms."".type='LinUCB'
algorithms.plain.type=1 | algorithms.plain.type='fedlinucb' | algorithms.plain.shedule=3 | algorithms.plain.schedule=0
algorithms.plain={type='homo', budgt=1} | algorithms.plain.policy.failur=0.1 | algorithms.plain.policy.failure=2
algorithms.ours.privacy.epsilon=-1 | algorithms.ours.privacy.typ='x' | algorithms.ours.privacy={epsilon=1}
environment=3 | environment.type='gap | environment.type='spere' | environment.n_agent=3 | environment.n_arms=0
environment={type='sphere', n_arms=3} | environments.b.type='gap' | environment.returning=3 | environment.returning={}
environment.returning.users=3 | environment.returning.n_users=0 | environment.drift.when=0
environment={type='replay', data={type='Budget', epsilon=1, delta=0.1}}
environment={type='replay', data={type='classification', name='x'}}
environment={type='replay', data={type='mslr', path='nowhere'}} | policy.theta_nrom=1 | policy.theta_norm=-1
grid=[1] | grid.epsilom=[1] | grid.epsilon=1 | grid.epsilon=[] | grid.epsilon=[1, -1] | grid.n_agents=[0]
grid.n_agents=[3, 0] | grid.ours.epsilon=[1]
"""


@pytest.mark.parametrize("change", [*re.split(r"\n| \| ", REFUSED.strip()), "horizon=3\nseeds=1"])
def test_changes_that_are_refused(change, file, capsys):
    """In one sentence, which names the table, the key, and the name that was meant."""
    assert main(["sweep", file(), "--set", change]) == 2
    error = capsys.readouterr().err
    *_, named = re.findall(r"\w+", change.partition("=")[0].replace("b.type", "")) or [""]
    assert named.removesuffix("type") in error
    nearly = dict(horizont="horizon", plane="plain", theta_nrom="theta_norm", spere="sphere", shedule="schedule")
    assert all(meant in error for word, meant in nearly.items() if word in change)
    assert error.startswith("fedbandit: ")
    assert error.count("\n") == 1
    assert not list(Path().rglob("*.npz"))


def test_files_that_are_refused(file, capsys):
    for text, words in {
        "horizon = ": ["TOML"],
        f"a = {'[' * 3000}{']' * 3000}": ["TOML"],
        "": ["horizon", "seeds", "algorithms"],
        OURS: ["[environment]", "[environments.NAME]"],
        SWEEP.replace("horizon = 40", "horizon = 0"): ["horizon"],  # which `fb.sweep` refuses
        OURS + "[environments]\nx.type = 'gap'": ["[environments.x]", "n_agents", "n_arms", "dim"],
    }.items():
        assert main(["sweep", file(text)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("fedbandit: sweep.toml")
        assert all(word in error for word in words)
    assert main(["sweep", "none.toml"]) == 2
    assert "none.toml" in capsys.readouterr().err


# What is asked and computed.


def test_what_the_command_asks_of_sweep(file, monkeypatch, capsys):
    """Its store, its executor, its part, and a name that stands for the file and the changes."""
    calls = []

    def sweep(**options):
        calls.append(options)
        return 3 if "part" in options else made(provenance=dict(pieces=1, computed=1, seconds=0.0))

    def failing(**options):
        raise RuntimeError("1 of 2 pieces failed at a worker")

    monkeypatch.setattr(simulation, "sweep", sweep)
    for flags in ("", "--set horizon=50", "--store here --executor processes:1", "--part 1/2"):
        assert main(["sweep", file(), *flags.split()]) == 0
    assert "3 runs computed" in capsys.readouterr().out.splitlines()[-1]
    one, other, third, part = calls
    assert (part.pop("part"), part["store"]) == ((1, 2), one["store"])
    assert (one["store"], one.get("executor"), one["throw"]) == (Path("results/store"), None, False)
    assert (one["horizon"], other["horizon"]) == (40, 50)
    assert (third["store"], third["executor"]._max_workers) == (Path("here"), 1)
    assert one["algos"]["ours"].privacy.budget == BUDGET
    written = sorted(Path("results").glob("sweep-????????.npz"))
    told = [fb.Result.load(path).provenance["configuration"] for path in written]
    assert sorted(one["set"] for one in told) == [[], ["horizon=50"]]
    assert {(one["file"], one["text"]) for one in told} == {("sweep.toml", SWEEP)}
    monkeypatch.setattr(simulation, "sweep", failing)
    assert main(["sweep", "sweep.toml", "--executor", "processes:1"]) == 2  # a worker's error is no traceback
    with pytest.raises(RuntimeError):
        main(["sweep", "sweep.toml"])


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_all_processes(file, number, code):
    """Nothing is left behind but whole files, and the same command goes on."""
    command = [sys.executable, "-m", "fedbandit_jax", "sweep", file(), "--set", "seeds=100", "--out", "out"]
    command += ["--executor", "processes:2"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while run.poll() is None and len(list(Path("out/store").rglob("seeds_*.npz"))) < 2:
        time.sleep(0.05)
    assert run.poll() is None
    workers = psutil.Process(run.pid).children(recursive=True)
    if number == signal.SIGINT:  # as Ctrl-C does
        os.killpg(run.pid, number)
    else:
        run.send_signal(number)
    error = run.communicate(timeout=120)[1]
    assert (run.returncode, error.count("Traceback")) == (code, 0), error
    assert "\nfedbandit: stopped" in error
    assert len(workers) >= 2
    assert not psutil.wait_procs(workers, timeout=30)[1]
    there = len(list(Path("out/store").rglob("seeds_*.npz")))
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 0 < there < 39
    assert "26 pieces" in done
    assert "26 of them" not in done
