import os
from pathlib import Path

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import audits
from fedbandit_jax.cli import main
from fedbandit_jax.engine import recording

SMALL = ["--agents", "3", "--arms", "4", "--dim", "3", "--horizon", "50", "--seeds", "2"]


def test_simulate(tmp_path, monkeypatch, capsys):
    """Interrupted, continued, repeated, shown."""
    add = recording.RoundRecord.add

    def interrupted(self, *arguments):
        if self.played:
            raise KeyboardInterrupt
        return add(self, *arguments)

    command = ["simulate", *SMALL, "--out", str(tmp_path), "--epsilon", "1", "5"]
    monkeypatch.setattr(recording.RoundRecord, "add", interrupted)
    assert main(command) == 130
    assert "the same command continues" in capsys.readouterr().err
    monkeypatch.setattr(recording.RoundRecord, "add", add)
    assert main(command) == 0
    text = capsys.readouterr().out
    for words in (
        "FedLinUCB",
        "Alg. 1 + Thm 5.1(epsilon=1.0)",
        "Alg. 8 + exact noise(epsilon=5.0)",
        "claim",
        "certified",
        "wrote",
    ):
        assert words in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sphere.json", "sphere.npz", "sphere.png"]
    first = fb.Result.load(tmp_path / "sphere").regret
    assert first.shape == (9, 2, 50)
    assert main(command) == 0
    np.testing.assert_array_equal(fb.Result.load(tmp_path / "sphere").regret, first)
    (tmp_path / "sphere.png").unlink()
    capsys.readouterr()
    assert main(["show", str(tmp_path / "sphere.npz")]) == 0
    assert (tmp_path / "sphere.png").exists()
    assert "certified" in capsys.readouterr().out


@pytest.mark.parametrize("graph", [(), pytest.param(("--graph", "ring", "--gamma", "2"), marks=pytest.mark.slow)])
def test_simulate_fed_ucb(tmp_path, capsys, graph):
    command = ["simulate", "--family", "fed_ucb", "--agents", "4", "--arms", "4", "--dim", "3", "--horizon", "40"]
    command += ["--seeds", "2", "--max-syncs", "8", "--threshold", "2", *graph]
    assert main([*command, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for words in (
        "Private-FedUCB, leaky",
        "the schedule leaks",
        "sparse vector test",
        *(("Gossip-FedUCB", "hops") if graph else ()),
    ):
        assert words in text
    assert "allowed per decoding" not in text  # nothing can wrap
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fed_ucb.json", "fed_ucb.npz", "fed_ucb.png"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--graph ring --gamma 0", "gamma must be >= 1, got 0"),
        ("--gamma 2", "gamma must be 1 without a graph, got 2"),
        ("--agents 1", "needs at least two agents"),
        ("--threshold 0", "threshold must be finite and > 0, got 0.0"),
        ("--threshold abc", "threshold must be a number > 0, 'M log T' or 'M^1.5', got 'abc'"),
        ("--share 1", "share must be in (0, 1), so that the shares of tests and releases add up to 1, got 1.0"),
        ("--arms 100", "n_arms must be <= dim^2 = 25"),
    ],
)
def test_simulate_fed_ucb_refuses(options, words, tmp_path, capsys):
    assert main(["simulate", "--family", "fed_ucb", *options.split(), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error


@pytest.mark.slow
def test_simulate_real_data(tmp_path):
    pytest.importorskip("sklearn")
    assert main(["simulate", "--env", "breast_cancer", "--horizon", "30", "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert fb.Result.load(tmp_path / "breast_cancer").config["environment"]["type"] == "Replay"


def test_calibrate(capsys):
    assert main(["calibrate", "--epsilon", "5"]) == 0
    text = capsys.readouterr().out
    assert "S = 400" in text
    for number in ("7.3167", "23.028", "2.6289", "11.877", "NO"):
        assert number in text


def test_calibrate_every_trust_model(capsys):
    for trust in ("silo_local", "shuffle_amplified", "shuffle_vector_sum", "secagg", "central"):
        assert main(["calibrate", "--epsilon", "1", "--trust", trust]) == 0
    assert main(["calibrate", "--epsilon", "1", "--trust", "local", "--release", "input_perturbation"]) == 0
    assert capsys.readouterr().out.count("tight") == 6
    assert main(["calibrate", "--epsilon", "1", "--release", "blt"]) == 0
    assert "15.759" in capsys.readouterr().out


def test_epsilon_of_a_sigma(capsys):
    assert main(["calibrate", "--sigma", "5.4516", "--delta", "0.1"]) == 0
    assert "gives epsilon = 1.52" in capsys.readouterr().out


def test_audit(tmp_path, capsys):
    command = ["audit", "--runs", "2000", "--only", "silo_local blt", "noise never", "--out", str(tmp_path)]
    assert main(command) == 0
    assert "1 shipped mechanisms: all as they should be" in capsys.readouterr().out
    assert (tmp_path / "audit.png").exists()
    controls = os.path.join(os.path.dirname(__file__), "privacy", "broken.py")
    assert main([*command, "--controls", controls]) == 0
    text = capsys.readouterr().out
    assert "1 shipped mechanisms, 1 controls: all as they should be" in text
    assert "FAIL" in text


def test_audit_that_finds_something(tmp_path, monkeypatch, capsys):
    """A broken mechanism among the shipped ones: named, with the reason, and exit code 1."""
    broken = audits.load(Path(__file__).parent / "privacy" / "broken.py")
    monkeypatch.setattr(audits, "shipped", lambda: [case for case in broken if case.name == "noise never added"])
    with pytest.raises(SystemExit) as end:
        main(["audit", "--runs", "1000", "--out", str(tmp_path)])
    assert end.value.code == 1
    text = capsys.readouterr().out
    assert "noise never added: epsilon is at least" in text
    assert "NOT as they should be: noise never added" in text


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["calibrate", "--release", "bush"], "release must be one of 'tree', "),
        (["calibrate", "--trust", "blind"], "trust must be one of 'silo_local', "),
        (["calibrate", "--trust", "local"], "release must be 'input_perturbation' with trust='local'"),
        (["calibrate", "--trust", "secagg", "--sigma", "3"], "trust must be silo_local, central or local with sigma"),
        (["calibrate", "--sigma", "0"], "sigma must be finite and > 0, got 0.0"),
        (["calibrate", "--sigma", "1e-300"], "sigma must be at least"),
        (["calibrate", "--delta", "0"], "delta must be in (0, 1), got 0.0"),
        (["calibrate", "--epsilon", "inf"], "epsilon must be finite and > 0, got inf"),
        (["calibrate", "--epsilon", "nan"], "epsilon must be finite and > 0, got nan"),
        (["calibrate", "--horizon", "0"], "horizon must be >= 25, got 0"),
        (["calibrate", "--visits", "0"], "visits must be >= 1, got 0"),
        (["calibrate", "--dim", "0", "--trust", "secagg"], "dim must be >= 1, got 0"),
        (["audit", "--runs", "10"], "runs must be >= 1000, got 10"),
        (["audit", "--only", "unicorn"], "only must name a part of silo_local tree, "),
        (["audit", "--controls", "nowhere.py"], "controls must be a Python file, got 'nowhere.py'"),
        (["simulate", "--epsilon", "-1"], "epsilon must be finite and > 0, got -1.0"),
        (["simulate", "--delta", "1"], "delta must be in (0, 1), got 1.0"),
        (["simulate", "--seeds", "0"], "n_seeds must be >= 1, got 0"),
        (["simulate", "--arms", "0"], "n_arms must be >= 1, got 0"),
        (["simulate", "--env", "mslr"], "mslr must be the folder of a copy of MSLR-WEB10K"),
        (
            ["simulate", "--out", "/proc/none"],
            "out must be a folder that can be written to, got '/proc/none'",
        ),
        (["simulate", "--horizon", "5"], "horizon must be >= 25, got 5"),
        (["simulate", "--epsilon"], "epsilon must name at least one budget, got none"),
        (["simulate", "--seed", "4294967296"], "seed must be in [0, 4.29497e+09], got 4294967296"),
        (["calibrate", "--epsilon"], "epsilon must name at least one budget, got none"),
        (["calibrate", "--delta", "nan"], "delta must be in (0, 1), got nan"),
        (["calibrate", "--horizon", "10"], "horizon must be >= 25, got 10"),
        (["show", "nowhere.npz"], "path must be a saved result, got 'nowhere.npz'"),
    ],
)
def test_errors_are_one_sentence(command, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert error.startswith("fedbandit: ")
    assert "Traceback" not in error
    assert [f for f in os.listdir(tmp_path) if not os.path.isdir(f)] == []


def test_help_teaches(capsys):
    for command in ([], ["simulate"], ["calibrate"], ["show"], ["data"]):
        with pytest.raises(SystemExit) as stop:
            main([*command, "--help"])
        assert stop.value.code == 0
    assert "Zhou & Chowdhury" in capsys.readouterr().out


def test_simulate_clustered(tmp_path, capsys):
    small = ["--users", "6", "--servers", "2", "--arms", "3", "--dim", "3", "--horizon", "300", "--seeds", "2"]
    which = ["--algorithms", "CDP-Homo-DC", "LinUCB", "--trigger", "count", "--epsilon", "1", "100"]
    assert main(["simulate", "--family", "clustered", *small, *which, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for words in ("6 users on 2 servers", "CDP-Homo-DC(epsilon=100.0)", "adjusted Rand index", "certified", "uploads"):
        assert words in text
    files = ["clustered.json", "clustered.npz", "clustered.png", "clustered_adjusted_rand_index.png"]
    assert sorted(p.name for p in tmp_path.iterdir()) == files


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--users 3 --clusters 4 --servers 1", "n_clusters must be at most the 3 users, got 4"),
        ("--users 3 --servers 4", "n_servers must be at most the 3 users, got 4"),
        ("--upload 0.5", "upload must be >= 1, got 0.5"),
        ("--gap 0", "gap must be in [0.001, 1], got 0"),
        ("--algorithms", "algorithms must name at least one, each once, got none"),
        ("--algorithms Homo CLUB Homo", "algorithms must name at least one, each once, got Homo CLUB Homo"),
        ("--users 2000000", "n_users must be at most 1,000,000, got 2,000,000"),
        ("--movielens nowhere", "nowhere"),
    ],
)
def test_clustered_bad_input(tmp_path, capsys, options, words):
    assert main(["simulate", "--family", "clustered", *options.split(), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


ARMS = ["simulate", "--family", "arms", "--horizon", "3000", "--seeds", "2", "--arms", "3"]


def test_simulate_arms(tmp_path, capsys):
    two = ["--algorithms", "SE", "Dist-RDP-SE", "--epsilon", "0.5", "1", "--radius", "exact"]
    assert main([*ARMS, *two, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for words in ("Dist-RDP-SE(epsilon=1.0)", "decoding failures", "Renyi DP with epsilon = 0.5", "a user sends"):
        assert words in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["arms.json", "arms.npz", "arms.png"]
    loaded = fb.Result.load(tmp_path / "arms")
    assert loaded.regret.shape[:2] == (3, 2)
    assert loaded.rounds[[0, -1]].tolist() == [1, 3000]
    assert set(loaded.counts) == {"decodings", "decoding failures", "eliminations"}
    assert main(["show", str(tmp_path / "arms.json")]) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--family", "graphs"], "family must be one of 'linear', 'fed_ucb', 'arms', 'clustered', got 'graphs'"),
        (["--family", "arms", "--means", "0.5", "1.5"], "means must be in [0, 1], got 1.5 of arm 1"),
        (["--family", "arms", "--arms", "1"], "n_arms must be >= 2, got 1"),
        (["--family", "arms", "--horizon", "3"], "horizon must be at least the number of arms 10, got 3"),
        (["--family", "arms", "--epsilon", "0"], "epsilon must be finite and > 0, got 0.0"),
        (["--family", "arms", "--scale", "0.5"], "scale must be in [1, 1.67772e+07], got 0.5"),
        (["--family", "arms", "--horizon", "3000000000"], "horizon must be at most 2,147,418,111 users"),
        (["--family", "arms", "--algorithms", "SE", "SE"], "algorithms must name at least one, each once, got SE SE"),
    ],
)
def test_arms_bad_input(tmp_path, capsys, options, words):
    assert main(["simulate", *options, "--out", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err


def test_audit_arms(tmp_path, capsys):
    only = ["--only", "Dist-CDP-SE messages", "--runs", "1000", "--out", str(tmp_path)]
    assert main(["audit", "--family", "arms", *only]) == 0
    text = capsys.readouterr().out
    assert "Dist-CDP-SE messages" in text
    assert "silo_local" not in text


@pytest.mark.parametrize("command", [["simulate"], ["simulate", "--family", "arms"], ["calibrate"], ["audit"]])
def test_help_shows_examples(capsys, command):
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert f"For example:\n  fedbandit {command[0]}" in capsys.readouterr().out
