"""Seeds that advance side by side are the seeds that would have advanced alone, and few programs serve them."""

import functools
import gc
import os
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import ENV, PLAIN, PRIVATE, deep, same_runs, simulate

import fedbandit_jax as fb
from fedbandit_jax.engine import batching, driver
from fedbandit_jax.engine.runners import Sequential, Synchronous

WIDE = fb.envs.sphere(256, 3, 2, rewards="bernoulli")
GOSSIP = fb.algos.GossipFedUCB(graph=fb.networks.make("ring", 3), gamma=1)


def pieces_of(env=ENV, algo=PLAIN, n_seeds=1, n_configs=1):
    """Of a run of nine rounds."""
    runner = Synchronous(env=env, algo=algo.bind(env.spec, 9), horizon=9)
    return batching.Pieces([runner] * n_configs, jax.random.split(jax.random.key(0), n_seeds))


def compiled(caplog):
    return [record for record in caplog.records if "XLA compilation" in record.getMessage()]


def test_runs_are_cut_into_pieces(monkeypatch):
    """Of some seeds each, as many as fill the vector units and leave something for every core; the last may repeat."""
    monkeypatch.setattr(batching, "_cores", lambda: 2)
    many = fb.envs.sphere(90, 2, 2)

    def pieces(env, n_seeds):
        return [(piece.layout.n_seeds, piece.seeds) for piece in pieces_of(env, n_seeds=n_seeds).pieces]

    assert pieces_of(many, n_seeds=3, n_configs=2).workers == 2
    assert pieces(ENV, 1) == [(1, slice(0, 1))]
    assert pieces(ENV, 7) == [(4, slice(0, 4)), (4, slice(4, 7))]
    assert [size for size, _ in pieces(ENV, 200)] == [16] * 13
    assert pieces(many, 3) == [(1, slice(i, i + 1)) for i in range(3)]


def test_workers_without_a_piece_share_the_agents_of_one(monkeypatch):
    """Parts that are joined where agents synchronise, also after a batch that the horizon cuts short."""
    env = fb.envs.sphere(300, 3, 2, rewards="bernoulli")
    runs, parts = {}, []
    divided = Synchronous.divided
    monkeypatch.setattr(Synchronous, "divided", lambda runner, most: parts.append(divided(runner, most)) or parts[-1])
    for cores in (1, 3):
        monkeypatch.setattr(batching, "_cores", lambda cores=cores: cores)
        runs[cores] = simulate(env, PRIVATE, horizon=17, seeds=1)
    assert parts == [None, 128]
    np.testing.assert_allclose(runs[3].regret, runs[1].regret, rtol=1e-4)
    np.testing.assert_array_equal(runs[3].communication["floats"], runs[1].communication["floats"])
    np.testing.assert_array_equal(runs[3].status, runs[1].status)


@pytest.mark.parametrize("algo", deep([PRIVATE, fb.algos.fed_ucb(), GOSSIP], keep=(0,)))
def test_other_horizons_and_numbers_of_seeds_compile_nothing(algo, caplog):
    """One program takes any number of steps up to its capacity, and a piece of seeds is one for all their numbers."""
    simulate(algo=algo)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for horizon, n_seeds in ((26, 2), (33, 3), (40, 7)):  # of 5 to 8 synchronisations
            simulate(algo=algo, horizon=horizon, seeds=n_seeds)
    assert not compiled(caplog)


@pytest.mark.parametrize(("env", "parts"), [(ENV, 1), (WIDE, 2)], ids=["whole", "parts"])
def test_programs_are_compiled_before_they_run(env, parts, caplog, monkeypatch):
    monkeypatch.setattr(batching, "_cores", lambda: 2)
    play = pieces_of(env)
    assert len(play.firsts) == parts
    play.compile(4)
    with jax.log_compiles(), caplog.at_level("WARNING"), ThreadPoolExecutor(2) as pool:
        play.advance(pool, play.init(), range(2), 4)
    assert not compiled(caplog)


@pytest.mark.slow
def test_a_process_keeps_a_bounded_number_of_programs(monkeypatch):
    monkeypatch.setattr(batching, "_advance", functools.lru_cache(2)(batching._advance.__wrapped__))
    held = []
    for i in range(3):
        play = pieces_of(algo=PLAIN.replace(schedule=2 + i))
        held.append(weakref.ref(batching._advance(play.pieces[0].layout)))
    gc.collect()
    assert [one() is None for one in held] == [True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        dict(trust="secagg", release="blt", confidence="known_noise", regularizer="project"),
        dict(trust="shuffle_vector_sum"),
    ],
    ids=lambda options: " ".join(options.values()),
)
def test_seeds_side_by_side_equal_each_alone(key, options):
    """At 2,627 statistics a release, where jaxlib 0.10.2 has read unwritten memory with two seeds on two cores."""
    env = fb.envs.sphere(4, 5, 71, rewards="bernoulli")
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 1e-4), schedule=5).replace(**options)
    both = simulate(env, algo, key=key, seeds=2)
    alone = jax.jit(lambda key: fb.rollout(env, algo, key, horizon=40).regret[-1])
    for seed in range(2):
        assert both.regret[seed, -1] == pytest.approx(float(alone(jax.random.fold_in(key, seed))), rel=1e-5)


@pytest.mark.slow
def test_runs_that_branch_on_data_agree_one_by_one_and_side_by_side(key, monkeypatch):
    env, budget = fb.envs.clustered(7, 2, 2, n_arms=3, dim=3), fb.privacy.Budget(50.0, 0.1)
    algos, grid = [fb.algos.FCLUB(budget, trigger="count", upload=1.5)], dict(exploration_scale=[0.1, 1.0])
    alone = fb.sweep(env, algos, grid=grid, horizon=70, key=key, seeds=3)
    monkeypatch.setattr(Sequential, "hints", Sequential.hints._replace(branches=False))
    same_runs(fb.sweep(env, algos, grid=grid, horizon=70, key=key, seeds=3), alone, atol=1e-4)


def test_progress_is_told(monkeypatch, capsys):
    """By a bar, or that it compiles by a line where there is no terminal; by nothing if it is switched off."""
    monkeypatch.setattr(driver, "PATIENCE", 0.0)
    said = {}
    for progress in (None, False, True):
        simulate(algo=PLAIN, progress=progress)
        said[progress] = capsys.readouterr().err
    assert "fedbandit_jax: compiling 1 of 1\n" in said[None]
    assert not said[False]
    assert "120/120" in said[True]  # rounds of all seeds


# Four devices, which are one CPU that is told to be four: the same runs, bit by bit.

SCRIPT = """
import sys
import jax, numpy as np
import fedbandit_jax as fb
algos = [fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=7), fb.algos.LinUCB()]
options = dict(horizon=30, key=jax.random.key(0), seeds=5, record={"arms": fb.record.every(fb.record.arms, 10)})
result = fb.sweep(fb.envs.gap(16, 5, 3), algos, grid={"epsilon": [1.0, 5.0]}, **options)
np.savez(sys.argv[1], devices=jax.local_device_count(), regret=result.regret, arms=result.records["arms"])
"""


@pytest.mark.slow
def test_four_devices_do_what_one_does(tmp_path):
    found = {}
    for n in (1, 4):
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={n}", "JAX_PLATFORMS": "cpu"}
        flags["PYTHONPATH"] = str(Path(fb.__file__).parent.parent)
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / f"{n}.npz")]
        subprocess.run(command, check=True, env=os.environ | flags, timeout=900)
        found[n] = dict(np.load(tmp_path / f"{n}.npz"))
        assert found[n].pop("devices") == n
    for name, one in found[1].items():
        np.testing.assert_array_equal(found[4][name], one)
