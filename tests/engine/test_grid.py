"""Sweeps over environments, or over what makes them, beside those over algorithms."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from helpers import ENV, PLAIN, PRIVATE

import fedbandit_jax as fb
from fedbandit_jax.engine.grid import expand
from fedbandit_jax.engine.setup import account

ALGOS = {"plain": PLAIN, "ours": PRIVATE}


def labels(env, grid, algos=ALGOS):
    return {label: one.coordinates for label, one in expand(env, algos, grid).items()}


def test_parameters_of_a_function_that_makes_environments():
    make = functools.partial(fb.envs.gap, n_arms=4)
    found = expand(make, ALGOS, {"n_agents": [2, 3], "dim": [3], "epsilon": [1, 5]})
    assert {label: one.coordinates for label, one in found.items()} == {
        "plain(n_agents=2)": {"algorithm": "plain", "n_agents": 2, "dim": 3},
        "plain(n_agents=3)": {"algorithm": "plain", "n_agents": 3, "dim": 3},
        **{
            f"ours(n_agents={m}, epsilon={epsilon})": dict(algorithm="ours", n_agents=m, dim=3, epsilon=epsilon)
            for m in (2, 3)
            for epsilon in (1, 5)
        },
    }
    for one in found.values():
        spec = one.env.spec
        assert (spec.n_agents, spec.n_arms, spec.dim) == (one.coordinates["n_agents"], 4, 3)
        if "epsilon" in one.coordinates:
            assert one.algo.privacy.budget.epsilon == one.coordinates["epsilon"]
    ours = [one.env for one in found.values() if one.coordinates["n_agents"] == 2]
    assert len(ours) == 3
    assert all(env is ours[0] for env in ours)  # so that its numbers are on the device once


def test_environments_by_name():
    envs = {"easy": fb.envs.gap(2, 4, 3, gap=0.3), "hard": fb.envs.gap(2, 4, 3, gap=0.1)}
    assert labels(envs, {"epsilon": [1]}) == {
        f"{algo}(environment={name})": {"algorithm": algo, "environment": name}
        | ({"epsilon": 1} if algo == "ours" else {})
        for algo in ALGOS
        for name in envs
    }


@pytest.mark.slow
def test_a_sweep_over_agents_is_its_runs(key):
    options = dict(horizon=10, key=key, seeds=[3, 5])
    swept = fb.sweep(fb.envs.gap, ALGOS, grid={"n_agents": [2, 3], "n_arms": [4], "dim": [3]}, **options)
    for label, point in swept.coordinates.items():
        alone = fb.simulate(fb.envs.gap(point["n_agents"], 4, 3), ALGOS[point["algorithm"]], **options)
        np.testing.assert_allclose(swept[label].regret, alone.regret, atol=1e-5)
        assert swept[label].certificate == alone.certificate
        assert swept[label].spec["n_agents"] == point["n_agents"]
    with pytest.raises(ValueError, match="several environments"):
        swept.spec  # noqa: B018
    assert "2 agents, 3 agents, T = 10 rounds, 2 seeds" in swept.summary()
    assert swept.summary().count("minus plain(n_agents=") == 2
    assert swept.sel(n_agents=3).spec["n_agents"] == 3


@pytest.mark.parametrize(
    ("env", "grid", "kind", "words"),
    [
        (
            fb.envs.gap,
            {"n_agents": [2], "dim": [3]},
            ValueError,
            "env must be given n_arms by the grid, got n_agents, dim",
        ),
        (fb.envs.gap, {}, ValueError, "env must be given n_agents, n_arms, dim by the grid, got none"),
        (fb.envs.gap, {"agents": [2]}, ValueError, "grid must name parameters of env or of an algorithm, got 'agents'"),
        (fb.envs.gap, {"n_agents": [0], "n_arms": [4], "dim": [3]}, ValueError, "n_agents must be >= 1, got 0"),
        ({}, {}, ValueError, "env must name at least one environment, got none"),
        ({"a": 5}, {}, TypeError, r"env\['a'\] must be an environment such as fb.envs.sphere\(...\), got 5"),
        ({1: fb.envs.gap(2, 4, 3)}, {}, TypeError, "a name in env must be a string of at least one character, got 1"),
        (lambda: 5, {}, TypeError, "what env returns must be an environment such as"),
        (lambda epsilon: 5, {"epsilon": [1]}, ValueError, "got 'epsilon', which both have"),
        (
            lambda seed: fb.envs.gap(2, 4, 3),
            {"seed": [1]},
            ValueError,
            "grid must write env.seed, got 'seed', which every",
        ),
        (None, {}, TypeError, "env must be an environment such as"),
    ],
)
def test_errors(env, grid, kind, words):
    with pytest.raises(kind, match=words):
        expand(env, ALGOS, grid)


# Parameters by path.

GROUPED = fb.algos.Grouped(grouping=fb.algos.Mixture(), policy=fb.algos.UCB())


def test_paths_are_labels_and_coordinates():
    grid = {"policy.theta_norm": [0.5, 0.7], "privacy.budget.epsilon": [2.0]}
    found = expand(ENV, {"ours": PRIVATE, "grouped": GROUPED}, grid)
    assert {label: one.coordinates for label, one in found.items()} == {
        **{
            f"ours(policy.theta_norm={x})": {
                "algorithm": "ours",
                "policy.theta_norm": x,
                "privacy.budget.epsilon": 2.0,
            }
            for x in (0.5, 0.7)
        },
        **{f"grouped(policy.theta_norm={x})": {"algorithm": "grouped", "policy.theta_norm": x} for x in (0.5, 0.7)},
    }
    assert [one.algo.policy.theta_norm for one in found.values()] == [0.5, 0.7, 0.5, 0.7]
    assert found["ours(policy.theta_norm=0.5)"].algo.privacy.budget.epsilon == 2.0


def test_parameters_of_the_environment_may_say_so():
    make = functools.partial(fb.envs.gap, n_arms=4, dim=3)
    found = labels(make, {"env.n_agents": [2, 3]}, {"plain": PLAIN})
    assert found == {f"plain(env.n_agents={m})": {"algorithm": "plain", "env.n_agents": m} for m in (2, 3)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agents(fb.algos.Federated):
    n_agents: int = 5


def test_numbers_of_32_bits_are_those_that_were_typed():
    found = labels(fb.envs.gap(2, 4, 3), {"failure": np.float32([0.1, 0.2])}, {"plain": PLAIN})
    assert [point["failure"] for point in found.values()] == [0.1, 0.2]


def test_a_parameter_of_both_has_two_paths():
    make = functools.partial(fb.envs.gap, n_arms=4, dim=3)
    algos = {"own": Agents()}
    with pytest.raises(ValueError, match="got 'n_agents', which both have: give env.n_agents or algo.n_agents"):
        expand(make, algos, {"n_agents": [2, 3]})
    (one,) = expand(make, algos, {"env.n_agents": [2], "algo.n_agents": [7]}).values()
    assert (one.env.spec.n_agents, one.algo.n_agents) == (2, 7)


@pytest.mark.parametrize(
    ("grid", "error", "words"),
    [
        ({"theta_norm": [1]}, TypeError, "several parts of Mixture: give policy.theta_norm or grouping.theta_norm"),
        ({"policy.theta_nrom": [1]}, ValueError, "grid must name parameters of env or of an algorithm, got 'policy.th"),
        ({"policy.theta_norm": [-1]}, ValueError, "theta_norm must be finite and >= 0, got -1"),
        ({"policy.": [1]}, ValueError, "grid must name parameters of env or of an algorithm, got 'policy.'"),
        ({"": [1]}, TypeError, "a parameter in grid must be a string of at least one character, got ''"),
        ({3: [1]}, TypeError, "a parameter in grid must be a string of at least one character, got 3"),
        ({"env.dim": [3]}, ValueError, "grid must name parameters of env or of an algorithm, got 'env.dim'"),
        ({"failure": [0.1], "policy.failure": [0.2]}, TypeError, "failure and policy.failure are one parameter of Mix"),
    ],
)
def test_paths_that_are_refused(grid, error, words):
    with pytest.raises(error, match=words):
        expand(ENV, {"grouped": GROUPED}, grid)
    with pytest.raises(ValueError, match="got 'env.dim', which is another name of 'dim'"):
        expand(functools.partial(fb.envs.gap, 2, 4), {"plain": PLAIN}, {"dim": [2], "env.dim": [3]})


def test_a_grid_over_a_path_is_compiled_once(key, monkeypatch):
    traced, algo = [], PLAIN.replace(schedule=9)  # of a batch that no other test has compiled
    act = type(algo.bind(ENV.spec, 40)).download

    def counted(self, *given):
        traced.append(self)
        return act(self, *given)

    monkeypatch.setattr(type(algo.bind(ENV.spec, 40)), "download", counted)
    options = dict(horizon=40, key=key, seeds=2)
    result = fb.sweep(ENV, {"plain": algo}, grid={"policy.theta_norm": [0.5, 0.7, 2.0]}, **options)
    once = len(traced)
    assert result.labels == tuple(f"plain(policy.theta_norm={x})" for x in (0.5, 0.7, 2.0))
    assert result.sel(**{"policy.theta_norm": 0.7}).labels == ("plain(policy.theta_norm=0.7)",)
    traced.clear()
    alone = fb.simulate(ENV, algo.replace(theta_norm=0.7), **options)
    assert 0 < once <= len(traced)
    np.testing.assert_allclose(result["plain(policy.theta_norm=0.7)"].regret, alone.regret, atol=1e-5)


def test_objects_in_a_grid_are_told_in_words_and_numbers():
    found = account(expand(ENV, {"ours": PRIVATE}, {"policy": [fb.algos.Greedy(shrinkage=3.0), fb.algos.Thompson()]}))
    told = [point["policy"] for point in json.loads(json.dumps(found["coordinates"])).values()]
    assert [one["type"] for one in told] == ["Greedy", "Thompson"]
    assert told[0]["shrinkage"] == 3.0
