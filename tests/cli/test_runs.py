"""Whole runs of every command; only two of them are in the default suite."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from command_line import files

import fedbandit_jax as fb
from fedbandit_jax import audits, cli, privacy
from fedbandit_jax.cli import main
from fedbandit_jax.cli._command import MANY, print_result
from fedbandit_jax.engine import curves

ARMS = importlib.import_module("fedbandit_jax.envs.arms")
SMALL = ["--agents", "3", "--arms", "4", "--dim", "3", "--horizon", "50", "--seeds", "2"]
BROKEN = Path(__file__).parents[1] / "audits" / "controls"


@pytest.mark.slow
def test_simulate(tmp_path, monkeypatch, capsys):
    """Interrupted, continued, repeated, shown; with two of the six algorithms."""
    add = curves.RoundTally.add

    def interrupted(self, *arguments):
        if self.played:
            raise KeyboardInterrupt
        return add(self, *arguments)

    command = ["simulate", *SMALL, "--out", str(tmp_path), "--epsilon", "1", "5", "--algorithms", "FedLinUCB"]
    command += ["Private-FedLinUCB, Alg. 8 + exact noise"]
    monkeypatch.setattr(curves.RoundTally, "add", interrupted)
    monkeypatch.setattr("fedbandit_jax.engine.driver.CHUNK_WORK", 0)
    assert main(command) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert [name.split(".")[-2:] for name in files(tmp_path)] == [["checkpoint", "0"]]
    monkeypatch.setattr(curves.RoundTally, "add", add)
    assert main(command) == 0
    text = capsys.readouterr().out
    for words in ("FedLinUCB", "Alg. 8 + exact noise(epsilon=5.0)", "claim", "certified", "wrote"):
        assert words in text
    written = files(tmp_path)
    stem = written[0].removesuffix(".npz")
    assert written == [f"{stem}.npz", f"{stem}.pdf", f"{stem}.png"]
    assert stem.startswith("linear-")
    first = fb.Result.load(tmp_path / stem).regret
    assert first.shape == (3, 2, 50)
    assert main(command) == 0
    np.testing.assert_array_equal(fb.Result.load(tmp_path / stem).regret, first)
    capsys.readouterr()
    assert main(["show", str(tmp_path / f"{stem}.npz")]) == 0
    assert files(tmp_path) == [f"{stem}.npz", f"{stem}.pdf", f"{stem}.png"]
    assert main(["show", str(tmp_path / f"{stem}.npz"), "--picture", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").exists()
    assert "certified" in capsys.readouterr().out


def test_many_certificates_are_left_to_show(capsys):
    """A sweep over budgets must not bury its table; what is not saved is printed whatever its length."""
    env = fb.envs.sphere(4, 3, 2, rewards="bernoulli")
    budgets = [fb.privacy.Budget(epsilon, 1e-6) for epsilon in np.linspace(1, 3, MANY + 1)]
    algos = {f"{budget.epsilon:g}": fb.algos.Federated(schedule=5, privacy=budget) for budget in budgets}
    result = fb.sweep(env, algos, horizon=20, key=jax.random.key(0), seeds=1)
    print_result(result, Path("here.npz"))
    text = capsys.readouterr().out
    assert text.endswith("\n7 certificates: `fedbandit show here.npz` prints them in full\n")
    assert "side by side" not in text
    print_result(result)
    assert capsys.readouterr().out.count("7 certificates side by side\n[1] ") == 1


@pytest.mark.slow
def test_simulate_linear(tmp_path, capsys):
    assert main(["simulate", "linear", *SMALL, "--name", "run", "--out", str(tmp_path), "--epsilon", "1", "5"]) == 0
    text = capsys.readouterr().out
    for words in ("Alg. 1 + Thm 5.1(epsilon=1.0)", "BLT noise(epsilon=5.0)", "secure aggregation(epsilon=1.0)"):
        assert words in text
    claims = [certificate.claim for certificate in fb.Result.load(tmp_path / "run").certificates.values()]
    assert claims == ["none", *["as_printed"] * 2, *["certified"] * 8]


ARMS_RUN = ["simulate", "arms", "--horizon", "3000", "--seeds", "2", "--arms", "3", "--name", "run"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithms", ["Dist-RDP-SE --epsilon 1", "SE Dist-RDP-SE --epsilon 0.5 1 --set radius=exact"])
def test_simulate_arms(tmp_path, capsys, algorithms):
    assert main([*ARMS_RUN, "--out", str(tmp_path), "--algorithms", *algorithms.split()]) == 0
    text = capsys.readouterr().out
    for words in ("Dist-RDP-SE", "decoding failures", "Renyi DP with epsilon = 1", "a user sends"):
        assert words in text
    assert files(tmp_path) == ["run.npz", "run.pdf", "run.png"]
    loaded = fb.Result.load(tmp_path / "run")
    assert loaded.regret.shape[:2] == (3 if "SE D" in algorithms else 1, 2)
    assert loaded.rounds[[0, -1]].tolist() == [1, 3000]
    assert set(loaded.counts) == {"decodings", "decoding failures", "eliminations"}
    assert main(["show", str(tmp_path / "run.npz")]) == 0


@pytest.mark.slow
def test_simulate_several_sizes(tmp_path, capsys):
    """A title has all of them; and a name that is a pattern of files removes no other run's checkpoint."""
    (tmp_path / ".ab.checkpoint.0").touch()
    command = ["simulate", "--arms", "4", "--dim", "3", "--horizon", "20", "--seeds", "2", "--algorithms", "FedLinUCB"]
    assert main([*command, "--set", "grid.n_agents=[2, 3]", "--name", "a*", "--out", str(tmp_path)]) == 0
    assert files(tmp_path) == [".ab.checkpoint.0", "a*.npz", "a*.pdf", "a*.png"]


@pytest.mark.slow
def test_simulate_schedules(tmp_path, capsys):
    command = ["simulate", "schedules", "--agents", "4", "--arms", "4", "--dim", "3", "--horizon", "40", "--seeds", "2"]
    command += [
        "--set",
        "algorithms.'Private-FedLinUCB, sparse vector'.schedule.max_syncs=8",
        "--set",
        "threshold=2",
        "--set",
        "gamma=2",
        "--name",
        "run",
    ]
    command += [
        "--set",
        "graph={type='ring', n_agents=4}",
        "--algorithms",
        *cli.FAMILIES["schedules"].contents()["algorithms"],
    ]
    assert main([*command, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for words in ("Private-FedUCB, leaky", "the schedule leaks", "sparse vector test", "Gossip-FedUCB", "hops"):
        assert words in text
    assert "allowed per decoding" not in text  # nothing can wrap
    assert files(tmp_path) == ["run.npz", "run.pdf", "run.png"]


@pytest.mark.slow
def test_simulate_clusters(tmp_path, capsys):
    small = [
        "--set",
        "n_users=6",
        "--set",
        "n_servers=2",
        "--arms",
        "3",
        "--dim",
        "3",
        "--horizon",
        "300",
        "--seeds",
        "2",
    ]
    which = [
        "--algorithms",
        "CDP-Homo-DC",
        "LinUCB",
        "--set",
        "trigger=count",
        "--epsilon",
        "1",
        "100",
        "--name",
        "run",
    ]
    assert main(["simulate", "clusters", *small, *which, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for words in ("6 users on 2 servers", "CDP-Homo-DC(epsilon=100.0)", "adjusted Rand index", "certified", "uploads"):
        assert words in text
    pictures = [f"run{gauge}.{kind}" for gauge in ("", "_adjusted_rand_index") for kind in ("pdf", "png")]
    assert files(tmp_path) == ["run.npz", *pictures]


@pytest.mark.slow
def test_simulate_real_data(tmp_path):
    pytest.importorskip("sklearn")
    command = ["simulate", "--env", "breast_cancer", "--horizon", "30", "--seeds", "1", "--name", "run"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert fb.Result.load(tmp_path / "run").spec["n_agents"] > 0


def test_calibrate(capsys):
    assert main(["calibrate", "--epsilon", "5"]) == 0
    text = capsys.readouterr().out
    assert "S = 400" in text
    for number in ("7.3167", "23.028", "2.6289", "11.877", "NO"):
        assert number in text
    assert " 135.73 " in text  # sqrt 23.028, of 100 silos, in a sum of at most 8 nodes
    assert "\ntree: at most 3.25 times the least std of any release" in text  # sqrt 72 / 2.612


def test_calibrate_every_trust_model(capsys):
    for trust in set(privacy.TRUST) - {"local"}:
        assert main(["calibrate", "--epsilon", "1", "--trust", trust]) == 0
    assert main(["calibrate", "--epsilon", "1", "--trust", "local", "--release", "input_perturbation"]) == 0
    assert capsys.readouterr().out.count("tight") == len(privacy.TRUST)
    assert main(["calibrate", "--epsilon", "1", "--release", "blt"]) == 0
    text = capsys.readouterr().out
    assert "15.759" in text
    assert "\nblt: at most 1.14 times" in text


TABLE = fb.data.Queries(np.ones((2, 1), np.float32), np.array([2]), np.ones(1, np.float32), "two rows")


def test_epsilon_of_a_sigma(capsys):
    assert main(["calibrate", "--sigma", "5.4516", "--delta", "0.1"]) == 0
    assert "gives epsilon = 1.52" in capsys.readouterr().out


@pytest.mark.slow
def test_audit(tmp_path, capsys):
    command = ["audit", "--runs", "2000", "--only", "silo_local blt median", "noise never", "--out", str(tmp_path)]
    assert main([*command, "--controls", str(BROKEN)]) == 0
    text = capsys.readouterr().out
    assert "1 shipped mechanisms, 1 controls: all as they should be" in text
    assert "FAIL" in text
    (picture,) = tmp_path.iterdir()
    assert picture.name.startswith("audit-all-")


def test_audit_that_finds_something(tmp_path, monkeypatch, capsys):
    """A broken mechanism among the shipped ones: named, with the reason, and exit code 1."""
    case = audits.Case(
        name="noise never added",
        mechanism=lambda key, sums: sums,
        data=np.zeros(2, np.float32),
        neighbour=np.ones(2, np.float32),
        epsilon=1.0,
        delta=1e-5,
    )
    monkeypatch.setattr(audits, "shipped", lambda *families: [case])
    assert main(["audit", "--family", "linear", "--runs", "1000", "--out", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "noise never added: epsilon is at least" in text
    assert "1 shipped mechanisms: NOT as they should be: noise never added" in text


def test_a_control_that_passes_is_told(tmp_path, monkeypatch, capsys):
    honest = audits.Case(name="constant", mechanism=lambda key, x: 0 * x, data=0.0, neighbour=1.0, epsilon=1, delta=0.0)
    monkeypatch.setattr(audits, "shipped", lambda *families: [])
    monkeypatch.setattr(audits, "load", lambda path: [honest])
    command = ["audit", "--family", "linear", "--runs", "1000", "--out", str(tmp_path), "--controls", "any.py"]
    assert main(command) == 1
    assert "0 shipped mechanisms, 1 controls: NOT as they should be: constant" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("word", ["calibrate", "--help"])
def test_a_reader_who_has_seen_enough(tmp_path, word):
    """As `fedbandit calibrate | head -1` has: there is no error to be told."""
    command = [sys.executable, "-m", "fedbandit_jax", word]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_name_of_files(tmp_path, capsys):
    for name in ("", "a/b", ".hidden"):
        assert main(["simulate", "--name", name, "--out", str(tmp_path)]) == 2
        assert f"--name must be a name for a file, without a folder, got {name!r}" in capsys.readouterr().err


def test_flags_of_data_are_used(monkeypatch):
    seen = []
    monkeypatch.setattr(fb.data, "mslr", lambda path, **options: seen.append((path, options)) or TABLE)
    assert main(["data", "mslr", "--path", "here", "--features", "body"]) == 0
    assert seen == [(Path("here"), {"features": "body"})]
