"""Programs are kept between processes; the next process finds them."""

import os
import subprocess
import sys

import pytest
from helpers import refused

from fedbandit_jax.engine import cache

RUN = """
import sys, jax, fedbandit_jax as fb
compiled = []
jax.monitoring.register_event_listener(lambda event, **_: compiled.append(event))
env = fb.envs.sphere(2, 3, 3)
fb.simulate(env, fb.algos.fed_lin_ucb(schedule=2), horizon=4, key=jax.random.key(0), seeds=1, progress=False)
print(sum(event.endswith("cache_hits") for event in compiled))
"""


def runs(**variables):
    """Cache hits, and what is written to stderr, of a new process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XDG_"))}
    ran = subprocess.run([sys.executable, "-c", RUN], env=kept | variables, check=True, capture_output=True, text=True)
    return int(ran.stdout), ran.stderr


@pytest.mark.slow
def test_the_next_process_finds_them_unless_jax_keeps_nothing(tmp_path):
    """They are kept by default, which is announced once."""
    here = dict(XDG_CACHE_HOME=str(tmp_path / "here"))
    (first, said), (second, nothing) = runs(**here), runs(**here)
    assert first == 0 < second
    assert said.startswith(f"compiled programs are kept in {tmp_path}")
    assert not nothing
    assert runs(XDG_CACHE_HOME=str(tmp_path / "none"), JAX_ENABLE_COMPILATION_CACHE="0") == (0, "")
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    hits, said = runs(XDG_CACHE_HOME=str(tmp_path / "file"))
    assert hits == 0
    assert said.startswith("compiled programs are not kept: XDG_CACHE_HOME must be")


def test_old_programs_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 25)
    programs = [f"jit_f-{letter * 64}-cache" for letter in "abc"]
    for i, name in enumerate([*programs, "mine-cache"]):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (i, i))
    cache.make_room(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*programs[1:], "mine-cache"]


def test_where_they_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_folder().parent == tmp_path / "fedbandit_jax"
    here = cache.default_folder()
    monkeypatch.setattr(cache.platform, "machine", lambda: "another")
    assert cache.default_folder() not in (here, tmp_path / "fedbandit_jax")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.default_folder().is_relative_to(tmp_path / ".cache")
    for home in ("", "relative"):
        monkeypatch.setenv("HOME", home)
        with refused("XDG_CACHE_HOME", None):
            cache.default_folder()
