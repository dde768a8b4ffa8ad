"""Runs of the commands: what is asked, printed and kept, and how they stop; runs that simulate are slow."""

import os
import re
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
from fedbandit_jax import audits, cli, privacy
from fedbandit_jax.cli import main
from fedbandit_jax.core import files as core_files
from fedbandit_jax.engine import simulation
from fedbandit_jax.report.plotting import figure

SMALL = "--agents 3 --arms 4 --dim 3 --horizon 50 --seeds 2"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        f"linear {SMALL} --epsilon 1 5",
        "arms --horizon 3000 --seeds 2 --arms 3 --algorithms SE Dist-RDP-SE --epsilon 0.5 1 --set radius=exact",
        "schedules --agents 4 --arms 4 --dim 3 --horizon 40 --seeds 2 --set threshold=2",
        "clusters --set n_users=6 --set n_servers=2 --arms 3 --dim 3 --horizon 300 --seeds 2 --algorithms CDP-FCLUB-DC",
    ],
)
def test_simulate_every_family(tmp_path, words):
    """What they claim is asked in test_flags.py."""
    assert main(["simulate", *words.split(), "--name", "mine", "--out", str(tmp_path)]) == 0
    assert (fb.Result.load(tmp_path / "mine").status == 0).all()


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
    assert (process.returncode, error.count("\n")) == (code, 2)
    assert error.startswith("\nfedbandit: stopped")


@pytest.mark.slow
def test_a_reader_who_has_seen_enough(tmp_path):
    """As `fedbandit calibrate | head -1` has: there is no error to be told."""
    command = [sys.executable, "-m", "fedbandit_jax", "calibrate"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_certificates_and_a_picture_if_asked_for(tmp_path, capsys):
    labels = [f"a{i}" for i in range(9)]
    proofs = {label: replace(PROVED, reason=f"because {label}") for label in labels}
    saved = made(labels=labels, certificates=proofs).save(tmp_path / "here")
    for flags in ("", "--certificates", f"--picture {tmp_path / 'again.png'}"):
        assert main(["show", str(saved), *flags.split()]) == 0
        assert ("because a8" in capsys.readouterr().out) == (flags == "--certificates")
    assert (tmp_path / "again.png").exists()


def calibrated(capsys, words):
    """The numbers that `fedbandit calibrate` prints."""
    assert main(["calibrate", *words.split()]) == 0
    return set(re.findall(r"\d+(?:\.\d+)?|NO|yes", capsys.readouterr().out))


def test_calibrate(capsys):
    found = calibrated(capsys, "--epsilon 5 --delta 0.1")
    assert {"400", "7.3167", "23.028", "1.9007", "yes"} <= found
    assert "135.73" in found  # sqrt 23.028, of 100 silos, in a sum of at most 8 nodes
    assert "15.759" in calibrated(capsys, "--epsilon 1 --delta 0.1 --release blt")
    assert "1.52462" in calibrated(capsys, "--sigma 5.4516 --delta 0.1")
    for trust in privacy.TRUST:
        calibrated(capsys, f"--epsilon 1 --trust {trust}{' --release input_perturbation' * (trust == 'local')}")


CONSTANT = audits.Case(name="constant", mechanism=lambda key, x: 0 * x, data=0.0, neighbour=1.0, epsilon=1, delta=0.0)
BARE = audits.Case(name="bare", mechanism=lambda key, x: x, data=0.0, neighbour=1.0, epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize(
    ("shipped", "controls", "code"), [([BARE], [], 1), ([CONSTANT], [], 0), ([], [CONSTANT], 1), ([], [BARE], 0)]
)
def test_an_audit_ends_with_what_it_finds(monkeypatch, capsys, shipped, controls, code):
    """A broken mechanism among the shipped ones, or a control that passes, is named."""
    monkeypatch.setattr(audits, "shipped", lambda *families: shipped)
    monkeypatch.setattr(audits, "load", lambda path: controls)
    command = ["audit", "--family", "linear", "--runs", "1000"]
    assert main([*command, *["--controls", "any.py"] * len(controls)]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    (one,) = shipped + controls
    assert (one.name in last) == bool(code)
