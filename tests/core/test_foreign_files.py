"""No file of another tool is replaced, emptied or deleted."""

import functools
import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
from helpers import refused, simulate

import fedbandit_jax as fb
from fedbandit_jax import cli
from fedbandit_jax.benchmark import board
from fedbandit_jax.core.files import LOCK, MARK, is_ours, locked, write_archive, write_atomic
from fedbandit_jax.engine import cache
from fedbandit_jax.report import html

SIMULATE = "simulate --algorithms FedLinUCB --agents 3 --arms 4 --dim 3 --horizon 20 --seeds 2 --name it --out"


@functools.cache
def result():
    return simulate()


def hold(path):
    with locked(path, "it must be free", otherwise="wait"):
        pass


def command(words):
    """Runs `fedbandit`, which says in a sentence what is in the way."""
    if cli.main([str(word) for word in words]):
        raise ValueError


def row(folder):
    return next(iter(board.rows())).save(folder / "it.npz")


# The file that is in the way, and what would write it into a folder.
WRITES = {
    "an archive": ("it.npz", lambda folder: write_archive(folder / "it.npz", "result", {}, {"x": np.ones(2)})),
    "a result": ("it.npz", lambda folder: result().save(folder / "it.npz")),
    "a row": ("it.npz", row),
    "a picture": ("it.png", lambda folder: fb.plotting.save(plt.figure(), folder / "it.png")),
    "a picture beside": ("it.pdf", lambda folder: fb.plotting.save(plt.figure(), folder / "it")),
    "a page": ("it.html", lambda folder: html.write(folder / "it.html", "it", [])),
    "a lock": (f"it{LOCK}", lambda folder: hold(folder / f"it{LOCK}")),
    "a checkpoint": ("it.0", lambda folder: simulate(checkpoint=folder / "it")),
    "an older checkpoint": ("it.0.before", lambda folder: simulate(checkpoint=folder / "it")),
    "the lock of a checkpoint": (f"it{LOCK}", lambda folder: simulate(checkpoint=folder / "it")),
    "simulate": ("it.npz", lambda folder: command([*SIMULATE.split(), folder])),
    "simulate, pictures": ("it.pdf", lambda folder: command([*SIMULATE.split(), folder])),
    "simulate, locks": (f".it{LOCK}", lambda folder: command([*SIMULATE.split(), folder])),
    "report": ("it.html", lambda folder: command(["report", folder, "--out", folder / "it.html"])),
    "board": ("it.html", lambda folder: command(["benchmark", "--page", "--board", folder / "it.html"])),
}


@pytest.mark.parametrize("what", WRITES)
def test_what_others_have_written_stays(what, tmp_path, capsys):
    name, write = WRITES[what]
    there = tmp_path / name
    for text in ("Chapter 1 of fedbandit_jax", "{}", f"{'Chapter 1, a figure ' * 500}{MARK}{' and more' * 500}"):
        there.write_text(text)
        with pytest.raises((ValueError, OSError)):
            write(tmp_path)
        assert there.read_text() == text
    there.unlink()
    thesis = tmp_path / "thesis"
    thesis.write_text("Chapter 1")
    there.symlink_to(thesis)
    with pytest.raises((ValueError, OSError)):
        write(tmp_path)
    assert there.is_symlink()
    assert thesis.read_text() == "Chapter 1"
    for make, kind in ((lambda: there.symlink_to(tmp_path / "nowhere"), Path.is_symlink), (there.mkdir, Path.is_dir),
                       (lambda: os.mkfifo(there), Path.is_fifo)):  # fmt: skip
        there.rmdir() if there.is_dir() else there.unlink()
        make()
        with pytest.raises((ValueError, OSError)):
            write(tmp_path)
        assert kind(there)
    assert not (tmp_path / "nowhere").exists()
    assert "Traceback" not in capsys.readouterr().err


def test_what_is_ours_is_replaced(tmp_path):
    """Also an empty file, as of `tempfile`, and one that was cut short."""
    path = tmp_path / "it.npz"
    for content in (b"", None):
        path.write_bytes(result().save(tmp_path / "other").read_bytes()[:1000] if content is None else content)
        result().save(path)
        assert fb.Result.load(path).regret.shape == result().regret.shape
    os.link(path, backup := tmp_path / "backup")
    before = backup.read_bytes()
    write_archive(path, "result", {}, {"x": np.ones(2)})
    assert backup.read_bytes() == before != path.read_bytes()
    for ending in ("png", "pdf", "svg"):
        for _ in range(2):
            (written,) = fb.plotting.save(plt.figure(), tmp_path / f"it.{ending}")
            assert is_ours(written)


def test_files_beside_ours_stay(tmp_path, monkeypatch):
    """Of names that look like ours: checkpoints that a run removes, unfinished copies, programs that JAX keeps."""
    names = ".it.checkpoint.txt", ".it.npz.0123abcd.tmp", "my-cache", "run.0.backup", "Is.npz", "it.npz.bak"
    others = [tmp_path / name for name in names]
    for name in (".it.checkpoint.d", f"jit_g-{'0f' * 32}-cache"):
        (tmp_path / name).mkdir()
    (tmp_path / ".it.checkpoint.link").symlink_to(tmp_path / "nowhere")
    for path in others:
        path.write_text("Chapter 1")
    assert cli.main([*SIMULATE.split(), str(tmp_path)]) == 0
    simulate(checkpoint=tmp_path / "run")
    monkeypatch.setattr(cache, "MOST_BYTES", 0)
    before = jax.config.jax_compilation_cache_dir
    (program := tmp_path / f"jit_f-{'0f' * 32}-cache").write_text("x")
    try:
        fb.keep_programs(tmp_path)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert not program.exists()
    assert [path.read_text() for path in others] == ["Chapter 1"] * len(others)


def test_what_appears_while_a_file_is_written_stays(tmp_path):
    path = tmp_path / "it"

    def write(file):
        file.write(MARK.encode())
        path.write_text("Chapter 1")

    with refused("path", path):
        write_atomic(path, write)
    assert [one.name for one in tmp_path.iterdir()] == ["it"]
    assert path.read_text() == "Chapter 1"
