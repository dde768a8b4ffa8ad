"""A lock is held by one process at a time, and by none that has died."""

import json
import os
import platform
import subprocess
import sys

import pytest

from fedbandit_jax.core import files
from fedbandit_jax.core.files import LOCK, locked

HOLD = """
import sys, time
from pathlib import Path
from fedbandit_jax.core.files import locked
with locked(Path(sys.argv[1]), "it must be free", otherwise="go away"):
    print("held", flush=True)
    time.sleep(60)
"""


def take(path):
    return locked(path, "it must be free, got 'it'", otherwise="take another")


def test_one_at_a_time(tmp_path):
    path = tmp_path / f"it{LOCK}"
    for _ in range(2):
        with take(path), pytest.raises(ValueError, match=rf"'it', .* process {os.getpid()} on {platform.node()}"):
            take(path).__enter__()
        assert not path.exists()
    with pytest.raises(KeyError), take(path):
        raise KeyError
    assert not path.exists()


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    path = tmp_path / f"it{LOCK}"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=f"process {holder.pid} on"):
            take(path).__enter__()
    finally:
        holder.kill()
        holder.communicate()
    assert json.loads(path.read_text())["process"] == holder.pid
    with take(path):
        assert json.loads(path.read_text())["process"] == os.getpid()
    assert not path.exists()


def test_nobody_knows_whether_a_process_elsewhere_has_died(tmp_path, monkeypatch):
    path = tmp_path / f"it{LOCK}"
    path.write_text('{"process": 7, "host": "elsewhere", "since": "2026-01-01 00:00:00"}')
    with pytest.raises(ValueError, match=rf"process 7 on elsewhere, since 2026-01-01 00:00:00: .* delete '{path}'"):
        take(path).__enter__()
    for left in ("", '{"process": 7'):  # killed before it had written its name
        path.write_text(left)
        with take(path):
            pass
    monkeypatch.setattr(files, "fcntl", None)  # no locks: only names
    with take(path), pytest.raises(ValueError, match=f"process {os.getpid()} .* delete"):
        take(path).__enter__()
    with take(path):
        pass


def test_a_full_disk_is_no_reason_to_be_two(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with take(tmp_path / f"it{LOCK}"), pytest.raises(ValueError, match="another process: wait"):
        take(tmp_path / f"it{LOCK}").__enter__()


RACE = """
import sys, time
from pathlib import Path
from fedbandit_jax.core.files import locked
lock, count, done = Path(sys.argv[1]), Path(sys.argv[2]), 0
while done < 200:
    try:
        with locked(lock, "", otherwise=""):
            count.write_text(str(int(count.read_text()) + 1))
            done += 1
    except ValueError:
        pass
"""


@pytest.mark.slow
def test_many_want_it(tmp_path):
    """It is created, taken and removed all the time, and never held twice: no count is lost."""
    (tmp_path / "count").write_text("0")
    wanting = [subprocess.Popen([sys.executable, "-c", RACE, tmp_path / "lock", tmp_path / "count"]) for _ in range(4)]
    assert [process.wait(timeout=120) for process in wanting] == [0] * 4
    assert (tmp_path / "count").read_text() == "800"
