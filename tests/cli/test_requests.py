"""What a simulation is asked for, how its files are named, and what is left of one that is stopped."""

import dataclasses
import os
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
from command_line import files

import fedbandit_jax as fb
from fedbandit_jax import cli
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.cli import main
from fedbandit_jax.core import files as core_files
from fedbandit_jax.core.files import locked
from fedbandit_jax.engine import simulation
from fedbandit_jax.report.result import Result


@pytest.fixture
def swept(monkeypatch):
    """Calls of `fb.sweep`, which returns at once."""
    calls = []

    def sweep(**options):
        calls.append(options)
        seeds, horizon = options["seeds"], options["horizon"]
        curve = np.ones((1, seeds, 2))
        spec = dict(n_agents=1, n_arms=2, dim=1, n_users=0, n_servers=1)
        return Result(
            rounds=np.array([1, horizon]),
            regret=curve,
            communication={name: curve for name in ("rounds", "floats", "bits")},
            gauges={"adjusted Rand index": curve, "another": curve} if options["env"].spec.n_users else {},
            status=np.zeros((1, seeds), int),
            certificates={"one": no_privacy("the algorithm adds no noise")},
            config={
                "environments": {"one": {"type": "Test", "spec": spec}},
                "algorithms": {"one": {}},
                "coordinates": {"one": {"algorithm": "one"}},
                **dict(horizon=horizon, seeds=[[0, seeds]], stride=None, key=[0, 1]),
            },
            provenance={},
        )

    monkeypatch.setattr(simulation, "sweep", sweep)
    return calls


def test_what_a_simulation_is_asked(swept, tmp_path, capsys):
    common = ["--out", str(tmp_path), "--seeds", "3", "--random-seed", "5"]
    assert main(["simulate", "arms", "--horizon", "700", "--epsilon", "1", "2", *common]) == 0
    options = swept[0]
    assert list(options["algos"]) == [name for name in fb.algos.ELIMINATION if name != "Shuffle-DP-SE"] + ["AdaC-UCB"]
    assert options["grid"] == {"epsilon": [1.0, 2.0]}
    assert (options["horizon"], options["seeds"], options["stride"]) == (700, 3, "log")
    assert int(jax.random.key_data(options["key"])[-1]) == 5
    assert main(["simulate", "arms", "--algorithms", "SE", *common, "--stride", "5", "--set", "failure=0.2"]) == 0
    assert (swept[1]["grid"], swept[1]["stride"]) == ({"failure": [0.2]}, 5)
    assert "wrote" in capsys.readouterr().out


def test_a_sweep_and_its_files_know_the_request(swept, tmp_path):
    assert main(["simulate", "arms", "--algorithms", "SE", "--name", "mine", "--out", str(tmp_path)]) == 0
    made = fb.Result.load(tmp_path / "mine").provenance["configuration"]
    assert made["set"] == ["key=0", "compare=['SE']"]
    assert made["text"] == cli.FAMILIES["arms"].file.read_text()


def test_epsilon_is_in_the_title_of_private_runs(swept, tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(fb.plotting, "regret", lambda result, title: titles.append(title))
    monkeypatch.setattr(fb.plotting, "gauge", lambda result, name, title: titles.append(title))
    monkeypatch.setattr(fb.plotting, "save", lambda figure, path: (path,))
    sweep = simulation.sweep

    def labelled(**options):
        result, spec = sweep(**options), options["env"].spec
        result.config["environments"]["one"]["spec"] = vars(spec)
        (epsilon,) = options["grid"].get("epsilon", [None])
        budget = dict(epsilon=epsilon, epsilon_exact=epsilon, delta=0.0)
        asked = {one: dataclasses.replace(proved, **budget) for one, proved in result.certificates.items()}
        return dataclasses.replace(result, certificates=asked)

    monkeypatch.setattr(simulation, "sweep", labelled)
    for words in (
        "arms --epsilon 5",
        "arms --algorithms SE",
        "clusters --epsilon 5",
        "schedules",
        "linear --agents 7",
    ):
        assert main(["simulate", *words.split(), "--out", str(tmp_path)]) == 0
    assert titles == [
        *("arms: K = 10, T = $10^{6}$; ε = 5", "arms: K = 10, T = $10^{6}$"),
        *["clusters: n = 40, L = 5, K = 10, d = 10, T = 100,000; ε = 5"] * 2,
        *("schedules: M = 20, K = 20, d = 5, T = 5,000; ε = 1", "sphere: M = 7, K = 100, d = 10, T = 4,000; ε = 1"),
    ]


def test_every_request_has_files_of_its_own(swept, tmp_path):
    arms = ["simulate", "arms", "--algorithms", "SE", "--out", str(tmp_path)]
    for words in ([], [], ["--set", "failure=0.2"], ["--random-seed", "1"], ["--name", "mine"]):
        assert main([*arms, *words]) == 0
    stems = {name.partition(".")[0] for name in files(tmp_path)}
    assert len(stems) == 4
    assert "mine" in stems
    assert all(stem.startswith("arms-") and len(stem) == 13 for stem in stems - {"mine"})
    assert {name.partition(".")[2] for name in files(tmp_path)} == {"npz", "png", "pdf"}
    assert {options["checkpoint"].name for options in swept} == {f".{stem}.checkpoint" for stem in stems}


def test_a_full_disk_does_not_swallow_what_was_found(swept, tmp_path, monkeypatch, capsys):
    def full(path, write, **options):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(core_files, "write_atomic", full)
    assert main(["simulate", "arms", "--algorithms", "SE", "--name", "mine", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "regret at T" in printed.out
    assert printed.err == f"fedbandit: [Errno 28] No space left on device: '{tmp_path / 'mine.npz'}'\n"
    assert files(tmp_path) == []


def test_two_processes_do_not_run_the_same(swept, tmp_path, capsys):
    command = ["simulate", "arms", "--algorithms", "SE", "--name", "mine", "--out", str(tmp_path)]
    with locked(tmp_path / ".mine.lock", "", otherwise=""):
        assert main(command) == 2
    error = capsys.readouterr().err
    assert (
        f"--name must be that of one run at a time, got 'mine', which is being written by process {os.getpid()}"
        in error
    )
    assert error.endswith(": wait until it ends, or give another name\n")
    assert not swept
    assert main(command) == 0
    assert files(tmp_path) == ["mine.npz", "mine.pdf", "mine.png"]


def test_sigterm_is_like_ctrl_c(tmp_path):
    code = "import time, fedbandit_jax.cli as cli\ndef wait(self): print('begun', flush=True); time.sleep(60)\n"
    code += "cli.SimulateCommand.run = wait\ncli.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "simulate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 143
    assert error == "\nfedbandit: stopped; the same command continues where it was\n"


def test_who_presses_ctrl_c_twice_waits_for_nothing(tmp_path):
    """Not for the computation of another thread, nor for what it was about to do; and sees no traceback."""
    code = "import time, fedbandit_jax.cli as cli\ndef wait(self):\n try: print('begun', flush=True); time.sleep(60)\n"
    code += " finally: print('stopping', flush=True); time.sleep(60)\ncli.SimulateCommand.run = wait\ncli.entry()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "simulate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for words in ("begun\n", "stopping\n"):
        assert process.stdout.readline() == words
        process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert error == "\nfedbandit: stopped at once\n"
