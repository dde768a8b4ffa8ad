"""Four devices, which are one CPU that is told to be four: the same runs, bit by bit, and the same agents."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import PLAIN, refused, simulate

import fedbandit_jax as fb

SCRIPT = """
import json, re, sys
import jax, numpy as np
path, cache, what = sys.argv[1:]
jax.config.update("jax_compilation_cache_dir", cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
import fedbandit_jax as fb
from fedbandit_jax.engine import batching, prepare
from fedbandit_jax.engine.runners import drawn
from fedbandit_jax.engine.options import Run
drawn.GROUP = 4
env, key = fb.envs.gap(16, 5, 3), jax.random.key(0)
plain = fb.algos.fed_lin_ucb(schedule=7)
algos = [fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=7), fb.algos.LinUCB(), fb.algos.fed_ucb()]
options = dict(horizon=30, key=key, seeds=5, record={"arms": fb.record.every(fb.record.arms, 10)})
found = {"devices": np.array(jax.local_device_count())}
if what == "runs":
    result = fb.sweep(env, algos[:2], grid={"epsilon": [1.0, 5.0]}, **options)
    found |= dict(regret=result.regret, arms=result.records["arms"])
else:
    devices = "agents" if jax.local_device_count() > 1 else "runs"
    for i, algo in enumerate(algos):
        result = fb.simulate(env, algo, devices=devices, **{**options, "seeds": 2, "record": None})
        found[f"regret {i}"] = result.regret
        whole = fb.simulate(env, algo, devices=devices, **{**options, "seeds": 2})
        found[f"arms {i}"] = whole.records["arms"]
    run = Run(horizon=28, key=key, seeds=1, devices="agents")
    made = prepare.set_up({"a": prepare.Configuration(env, plain, {})}, run)
    play = batching.Pieces([made.runners["a"]], jax.vmap(jax.random.key)(np.arange(1)))
    (state,), piece = play.init(), play.pieces[0]
    steps = batching._steps(range(4), 4)
    text = batching._advance(piece.layout).lower(piece.leaves, piece.keys, *state[:2], *steps).compile().as_text()
    kinds = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
    found["sent"] = [len(re.findall(rf"\\b{kind}(?:-start)?\\(", text)) for kind in kinds]
np.savez(path, **found)
"""


def run(path, devices, what):
    cache = os.environ.get("FEDBANDIT_TEST_CACHE", str(path.parent / "cache"))
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    command, here = [sys.executable, "-c", SCRIPT, str(path), cache, what], Path(fb.__file__).parent.parent
    subprocess.run(command, check=True, env=os.environ | flags, cwd=here, timeout=900)
    with np.load(path) as found:
        assert found["devices"] == devices
        return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "atol"), [("runs", 0), ("agents", 1e-3)])
def test_four_devices_do_what_one_does(what, atol, tmp_path):
    """Agents, in groups of four, by GSPMD, or offered all contexts, do so up to rounding.

    What they send, their regret and their status are summed once in a batch, outside of the loop over rounds.
    """
    one, four = (run(tmp_path / f"{n}.npz", n, what) for n in (1, 4))
    for name in one.keys() - {"devices", "sent"}:
        np.testing.assert_allclose(four[name], one[name], rtol=0, atol=atol if "regret" in name else 0)
    if what == "agents":
        assert 1 <= four["sent"][0] <= 3
        assert not four["sent"][1:].any()


def test_agents_on_one_device_are_runs():
    runs, agents = (simulate(algo=PLAIN, devices=kind) for kind in ("runs", "agents"))
    np.testing.assert_allclose(agents.regret, runs.regret, rtol=1e-5)


def test_agents_who_cannot_be_spread(monkeypatch):
    with refused("devices"):
        simulate(fb.envs.clustered(7, 2, 2, n_arms=3, dim=3), fb.algos.CLUB(), devices="agents")
    four = jax.sharding.AbstractMesh((4,), ("agents",))
    monkeypatch.setattr("fedbandit_jax.engine.prepare.mesh", lambda: four)
    with refused("devices"):
        simulate(devices="agents")
