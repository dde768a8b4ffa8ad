"""Programs are kept between processes; the next process finds them."""

import os
import subprocess
import sys

import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine import cache

RUN = """
import sys, jax, fedbandit_jax as fb
compiled = []
jax.monitoring.register_event_listener(lambda event, **_: compiled.append(event))
fb.keep_programs(sys.argv[1])
env = fb.envs.sphere(2, 3, 3)
fb.simulate(env, fb.algos.fed_lin_ucb(schedule=2), horizon=4, key=jax.random.key(0), seeds=1)
print(sum(event.endswith("cache_hits") for event in compiled))
"""


@pytest.mark.slow
def test_the_next_process_finds_them(tmp_path, monkeypatch):
    environment = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    hits = [
        int(subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], env=environment, check=True,
                           capture_output=True, text=True).stdout)
        for _ in range(2)
    ]  # fmt: skip
    assert hits[0] == 0 < hits[1]


def test_where_they_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_folder().parent == tmp_path / "fedbandit_jax"
    monkeypatch.setattr(cache.platform, "machine", lambda: "another")
    assert cache.default_folder() != tmp_path / "fedbandit_jax"
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="folder must be a folder that can be written to, got .*file"):
        fb.keep_programs(file)
    with pytest.raises(TypeError, match="folder must be a str or a Path, got 3"):
        fb.keep_programs(3)
