"""Four devices, which are one CPU that is told to be four: the same runs, bit by bit."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedbandit_jax as fb

SCRIPT = """
import sys
import jax, numpy as np
path, cache = sys.argv[1:]
jax.config.update("jax_compilation_cache_dir", cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
import fedbandit_jax as fb
algos = [fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=7), fb.algos.LinUCB()]
options = dict(horizon=30, key=jax.random.key(0), seeds=5, record={"arms": fb.record.every(fb.record.arms, 10)})
result = fb.sweep(fb.envs.gap(16, 5, 3), algos, grid={"epsilon": [1.0, 5.0]}, **options)
np.savez(path, devices=jax.local_device_count(), regret=result.regret, arms=result.records["arms"])
"""


def run(path, devices):
    cache = os.environ.get("FEDBANDIT_TEST_CACHE", str(path.parent / "cache"))
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    command, here = [sys.executable, "-c", SCRIPT, str(path), cache], Path(fb.__file__).parent.parent
    subprocess.run(command, check=True, env=os.environ | flags, cwd=here, timeout=900)
    with np.load(path) as found:
        assert found["devices"] == devices
        return dict(found)


@pytest.mark.slow
def test_four_devices_do_what_one_does(tmp_path):
    one, four = (run(tmp_path / f"{n}.npz", n) for n in (1, 4))
    for name in ("regret", "arms"):
        np.testing.assert_array_equal(four[name], one[name])
