"""Arguments of a simulation from the command line, names of its files, and how it stops."""

import signal
import subprocess
import sys
from dataclasses import replace

import jax
import pytest
from command_line import files
from four_arms import VARIANTS
from handmade import PROVED, made

import fedbandit_jax as fb
from fedbandit_jax import cli
from fedbandit_jax.cli import main
from fedbandit_jax.core import files as core_files
from fedbandit_jax.engine import simulation
from fedbandit_jax.report.plotting import figure


@pytest.fixture
def swept(monkeypatch):
    """Calls of `fb.sweep`, which returns at once; pictures are empty files."""
    calls = []

    def sweep(**options):
        calls.append(options)
        result = made(labels=["one"], certificates={"one": PROVED})
        return result if options["env"].spec.n_users else replace(result, gauges={})

    monkeypatch.setattr(simulation, "sweep", sweep)
    monkeypatch.setattr(figure, "_write", lambda *given: None)
    return calls


def test_what_a_simulation_is_asked_and_its_files(swept, tmp_path):
    """Every request has files of its own, and the same again the same ones."""
    first = "--horizon 700 --epsilon 1 2 --seeds 3 --random-seed"
    second = "--algorithms SE --set stride=5 --set failure=0.2"
    for words in (f"{first} 5", f"{first} 5", f"{first} 6", second, f"{second} --name mine"):
        assert main(["simulate", "arms", *words.split(), "--out", str(tmp_path)]) == 0
    one, *_, other = swept
    one_arm = ["AdaC-UCB", "Phased KL-UCB", "KL-UCB"]
    assert list(one["algos"]) == [name for name in VARIANTS if name not in ("CDP-SE", "Shuffle-DP-SE")] + one_arm
    assert (one["grid"], other["grid"]) == ({"epsilon": [1.0, 2.0]}, {"failure": [0.2]})
    assert (one["horizon"], one["seeds"], one["stride"], other["stride"]) == (700, 3, "log", 5)
    assert int(jax.random.key_data(one["key"])[-1]) == 5
    told = fb.Result.load(tmp_path / "mine").provenance["configuration"]
    assert told["set"] == ["key=0", "compare=['SE']", "stride=5", "failure=0.2"]
    assert told["text"] == cli.SimulateCommand(family="arms").file.read_text()
    stems = {name.partition(".")[0] for name in files(tmp_path)}
    assert len(stems) == 4
    assert all(stem.startswith("arms-") and len(stem) == 13 for stem in stems - {"mine"})
    assert len(files(tmp_path)) == 3 * len(stems)
    assert {options["checkpoint"].name for options in swept} == {f".{stem}.checkpoint" for stem in stems}


def test_the_checkpoint_of_a_whole_run_goes(swept, tmp_path):
    """Its name is no pattern of files. Clusters have a picture of their gauge."""
    for name in ("a*.checkpoint.0", "a*.checkpoint.txt", "ab.checkpoint.0"):
        (tmp_path / f".{name}").touch()
    assert main(["simulate", "clusters", "--name", "a*", "--out", str(tmp_path)]) == 0
    pictures = [f"a*{gauge}.{kind}" for gauge in ("", "_adjusted_rand_index") for kind in ("pdf", "png")]
    assert files(tmp_path) == [".a*.checkpoint.txt", ".ab.checkpoint.0", "a*.npz", *pictures]


def test_a_full_disk_does_not_swallow_what_was_found(swept, tmp_path, monkeypatch, capsys):
    def full(path, write, **options):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(core_files, "write_atomic", full)
    assert main(["simulate", "arms", "--algorithms", "SE", "--name", "mine", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "certified" in printed.out
    assert str(tmp_path / "mine.npz") in printed.err
    assert files(tmp_path) == []


WAITS = """
import time, fedbandit_jax.cli as cli
def wait(self):
    try: print('begun', flush=True); time.sleep(60)
    finally: PATIENT and (print('stopping', flush=True), time.sleep(60))
cli.SimulateCommand.run = wait
cli.entry()
"""


@pytest.mark.parametrize(("patient", "number", "code"), [(False, signal.SIGTERM, 143), (True, signal.SIGINT, 130)])
def test_sigterm_is_like_ctrl_c(patient, number, code):
    """Who presses it twice waits for nothing: neither a computation nor its end; and sees no traceback."""
    command = [sys.executable, "-c", WAITS.replace("PATIENT", str(patient)), "simulate"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for word in ("begun\n", "stopping\n")[: 1 + patient]:
        assert process.stdout.readline() == word
        process.send_signal(number)
    _, error = process.communicate(timeout=20)
    assert process.returncode == code
    assert error.startswith("\nfedbandit: stopped")
    assert error.count("\n") == 2
