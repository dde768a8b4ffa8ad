"""What a result lacks is computed, and nothing else; and only with what the result was computed with."""

import dataclasses
import functools

import numpy as np
import pytest
from helpers import ENV, PLAIN, PRIVATE, simulate, sweep

import fedbandit_jax as fb
from fedbandit_jax.engine import driver

ALGOS, GRID = {"plain": PLAIN, "ours": PRIVATE}, {"epsilon": [1.0, 5.0]}


@pytest.fixture
def computed(monkeypatch):
    """How many configurations and seeds each program that runs has."""
    found, run = [], driver.run

    def noted(processes, keys, **options):
        found.append((len(processes), len(keys)))
        return run(processes, keys, **options)

    monkeypatch.setattr(driver, "run", noted)
    return found


@functools.cache
def swept():
    return sweep(ALGOS, grid=GRID, seeds=3)


def test_more_seeds(tmp_path, computed):
    swept().save(tmp_path / "few")  # as it will be next week
    few = fb.Result.load(tmp_path / "few")
    others = sweep(ALGOS, grid=GRID, seeds=[3, 4])
    computed.clear()
    found = fb.extend(few, ENV, ALGOS, grid=GRID, seeds=5)
    assert computed == [(1, 2), (2, 2)]
    assert found.config == {**few.config, "seeds": [[0, 5]]}
    assert dict(found.certificates) == dict(few.certificates)
    for name in ("regret", "status"):
        np.testing.assert_array_equal(getattr(found, name)[:, :3], getattr(few, name))
        np.testing.assert_array_equal(getattr(found, name)[:, 3:], getattr(others, name))
    assert fb.extend(few, ENV, ALGOS, grid=GRID, seeds=2) is few
    computed.clear()
    one = fb.extend(few["ours(epsilon=5.0)"], ENV, ALGOS, grid=GRID, seeds=[7, 1, 3])  # of one algorithm
    assert computed == [(1, 2)]
    np.testing.assert_array_equal(one.seeds, [0, 1, 2, 7, 3])
    np.testing.assert_array_equal(one.regret[:3], few["ours(epsilon=5.0)"].regret)
    alone = simulate(algo=PRIVATE.replace(epsilon=5.0), seeds=[7, 3])
    np.testing.assert_array_equal(one.regret[3:], alone.regret)


def test_more_rounds(computed):
    few = simulate(algo=PLAIN, seeds=2, stride=20)
    found = fb.extend(few, ENV, PLAIN, horizon=80, seeds=range(1, 3))
    assert computed == [(1, 2), (1, 3)]
    whole = simulate(algo=PLAIN, seeds=3, stride=20, horizon=80)
    assert found.config == whole.config
    np.testing.assert_array_equal(found.regret, whole.regret)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(env=fb.envs.sphere(3, 4, 5, rewards="bernoulli")), "env must be that of the result, got environments.pl"),
        (
            dict(algos={**ALGOS, "ours": PRIVATE.replace(visits=2)}),
            "algos must be that of the result, got algorithms.o",
        ),
        (
            dict(algos={"plain": PLAIN}, grid={}),
            r"algos and grid must make 'ours\(epsilon=1.0\)', which the result has",
        ),
        (dict(grid={"epsilon": [1, 5]}), "algos and grid must make 'ours"),
        (dict(horizon=39), "horizon must be >= 40, got 39"),
        (dict(horizon=41, stride=20), "stride must divide the horizon 41, got 20"),
        (dict(seeds=[1, 1]), "seeds must be distinct integers"),
        (dict(jax="0.1"), "result must be by the jax that runs here, .*, got one by 0.1: compute all of it again"),
        (dict(platform="gpu"), "result must be by the platform that runs here, cpu, .*, got one by gpu"),
    ],
)
def test_errors(change, words, monkeypatch):
    result = swept()
    for name, value in change.items():
        if name in ("jax", "platform", "stride"):
            part = "config" if name == "stride" else "provenance"
            result = dataclasses.replace(result, **{part: {**getattr(result, part), name: value}})
    monkeypatch.setattr(driver, "run", lambda *a, **k: pytest.fail("compiled before checking"))
    given = dict(env=ENV, algos=ALGOS, grid=GRID, seeds=5, horizon=None)
    with pytest.raises(ValueError, match=words):
        fb.extend(result, **{name: change.get(name, value) for name, value in given.items()})


def test_bad_seeds_are_told_by_their_numbers():
    result = simulate(algo=PLAIN, seeds=range(7, 9))
    bad = dataclasses.replace(result, status=np.array([0, int(fb.Status.NOT_FINITE)]))
    with pytest.raises(fb.SimulationError, match="NOT_FINITE in FedLinUCB: seeds 8[.]"):
        fb.extend(bad, ENV, PLAIN, seeds=range(7, 9))
    assert fb.extend(bad, ENV, PLAIN, seeds=range(7, 9), throw=False) is bad


def test_records_are_not_extended():
    """New seeds would have none, and nothing would say so."""
    result = dataclasses.replace(simulate(env=ENV, algo=PLAIN), records={"arms": np.zeros((3, 40, 1))})
    with pytest.raises(ValueError, match="result must have no records for seeds or rounds to be added, got arms"):
        fb.extend(result, ENV, PLAIN, seeds=5)
