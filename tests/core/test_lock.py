"""A lock is held by one process at a time, and by none that has died."""

import os
import subprocess
import sys

import pytest
from helpers import refused

from fedbandit_jax.core.files import locked

HOLD = """
import sys, time
from pathlib import Path
from fedbandit_jax.core.files import locked
with locked(Path(sys.argv[1]), "", ""):
    print("held", flush=True)
    time.sleep(60)
"""


def taken(path, by):
    with refused("name", "it") as found:
        locked(path, "name", "it").__enter__()
    return bool(found.match(f"held by process {by} on"))


def test_one_at_a_time(tmp_path):
    path = tmp_path / "it"
    for _ in range(2):
        with locked(path, "name", "it"):
            assert taken(path, os.getpid())
        with pytest.raises(KeyError), locked(path, "name", "it"):
            raise KeyError
        assert not list(tmp_path.iterdir())


def test_locks_of_other_tools_are_left_alone(tmp_path):
    other = tmp_path / "poetry.lock"
    other.write_text("packages")
    with locked(tmp_path / "poetry", "name", "it"):
        pass
    assert other.read_text() == "packages"


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    path = tmp_path / "it"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        assert taken(path, holder.pid)
    finally:
        holder.kill()
        holder.communicate()
    with locked(path, "name", "it"):
        assert taken(path, os.getpid())


RACE = """
import sys
from pathlib import Path
from fedbandit_jax.core.files import locked
lock, count, done = Path(sys.argv[1]), Path(sys.argv[2]), 0
while done < 200:
    try:
        with locked(lock, "", ""):
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
