import os

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import driver
from fedbandit_jax.cli import main

SMALL = ["--agents", "3", "--arms", "4", "--dim", "3", "--horizon", "50", "--seeds", "2"]


def test_simulate(tmp_path, capsys):
    assert main(["simulate", *SMALL, "--out", str(tmp_path), "--epsilon", "1", "5"]) == 0
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
    assert fb.Result.load(tmp_path / "sphere").regret.shape == (5, 2, 50)
    (tmp_path / "sphere.png").unlink()
    assert main(["show", str(tmp_path / "sphere.npz")]) == 0
    assert (tmp_path / "sphere.png").exists()
    assert "certified" in capsys.readouterr().out


def test_simulate_real_data(tmp_path):
    pytest.importorskip("sklearn")
    assert main(["simulate", "--env", "breast_cancer", "--horizon", "30", "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert fb.Result.load(tmp_path / "breast_cancer").config["environment"]["type"] == "Replay"


def test_simulate_continues(tmp_path, monkeypatch, capsys):
    add = driver._Record.add

    def interrupted(self, *arguments):
        if self.rounds:
            raise KeyboardInterrupt
        return add(self, *arguments)

    command = ["simulate", *SMALL, "--out", str(tmp_path)]
    monkeypatch.setattr(driver._Record, "add", interrupted)
    assert main(command) == 130
    assert "the same command continues" in capsys.readouterr().err
    monkeypatch.setattr(driver._Record, "add", add)
    assert main(command) == 0
    first = fb.Result.load(tmp_path / "sphere").regret
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sphere.json", "sphere.npz", "sphere.png"]
    assert main(command) == 0
    np.testing.assert_array_equal(fb.Result.load(tmp_path / "sphere").regret, first)


def test_calibrate(capsys):
    assert main(["calibrate", "--epsilon", "5"]) == 0
    text = capsys.readouterr().out
    assert "S = 400" in text
    for number in ("7.3167", "23.028", "2.6289", "11.877", "NO"):
        assert number in text


@pytest.mark.parametrize(
    ("command", "words"),
    [
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
