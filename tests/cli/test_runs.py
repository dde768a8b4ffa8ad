"""Whole runs of every command; those that simulate are slow."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from handmade import PROVED, made

import fedbandit_jax as fb
from fedbandit_jax import audits, privacy
from fedbandit_jax.cli import main

SMALL = "--agents 3 --arms 4 --dim 3 --horizon 50 --seeds 2"
BROKEN = Path(__file__).parents[1] / "audits" / "controls"


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


def test_certificates_and_a_picture_if_asked_for(tmp_path, capsys):
    labels = [f"a{i}" for i in range(9)]
    proofs = {label: replace(PROVED, reason=f"because {label}") for label in labels}
    saved = made(labels=labels, certificates=proofs).save(tmp_path / "here")
    for flags in ([], ["--certificates"]):
        assert main(["show", str(saved), *flags]) == 0
        assert ("because a8" in capsys.readouterr().out) == bool(flags)
    assert main(["show", str(saved), "--picture", str(tmp_path / "again.png")]) == 0
    assert (tmp_path / "again.png").exists()


def calibrated(capsys, words):
    """The numbers that `fedbandit calibrate` prints."""
    assert main(["calibrate", *words.split()]) == 0
    return set(re.findall(r"\d+(?:\.\d+)?|NO|yes", capsys.readouterr().out))


def test_calibrate(capsys):
    found = calibrated(capsys, "--epsilon 5 --delta 0.1")
    assert {"400", "7.3167", "23.028", "1.9007", "yes"} <= found
    assert "135.73" in found  # sqrt 23.028, of 100 silos, in a sum of at most 8 nodes
    assert "3.25" in found  # sqrt 72 / 2.612: the std of a tree over the least of any release
    assert {"15.759", "1.14"} <= calibrated(capsys, "--epsilon 1 --delta 0.1 --release blt")
    assert "1.52462" in calibrated(capsys, "--sigma 5.4516 --delta 0.1")
    for trust in privacy.TRUST:
        calibrated(capsys, f"--epsilon 1 --trust {trust}{' --release input_perturbation' * (trust == 'local')}")


@pytest.mark.slow
def test_audit(tmp_path, capsys):
    command = ["audit", "--runs", "2000", "--only", "silo_local blt median", "noise never", "--out", str(tmp_path)]
    assert main([*command, "--controls", str(BROKEN)]) == 0
    assert "1 shipped mechanisms, 1 controls" in capsys.readouterr().out
    (picture,) = tmp_path.iterdir()
    assert picture.name.startswith("audit-all-")


CONSTANT = audits.Case(name="constant", mechanism=lambda key, x: 0 * x, data=0.0, neighbour=1.0, epsilon=1, delta=0.0)
BARE = audits.Case(name="bare", mechanism=lambda key, x: x, data=0.0, neighbour=1.0, epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize(
    ("shipped", "controls", "code"), [([BARE], [], 1), ([CONSTANT], [], 0), ([], [CONSTANT], 1), ([], [BARE], 0)]
)
def test_an_audit_ends_with_what_it_finds(tmp_path, monkeypatch, capsys, shipped, controls, code):
    """A broken mechanism among the shipped ones, or a control that passes, is named."""
    monkeypatch.setattr(audits, "shipped", lambda *families: shipped)
    monkeypatch.setattr(audits, "load", lambda path: controls)
    command = ["audit", "--family", "linear", "--runs", "1000", "--out", str(tmp_path)]
    assert main([*command, *["--controls", "any.py"] * len(controls)]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    (one,) = shipped + controls
    assert (one.name in last) == bool(code)


@pytest.mark.slow
def test_a_reader_who_has_seen_enough(tmp_path):
    """As `fedbandit calibrate | head -1` has: there is no error to be told."""
    command = [sys.executable, "-m", "fedbandit_jax", "calibrate"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
