"""Sweeps over environments, or over what makes them, beside those over algorithms; and parameters that are replaced.

What is wrong: tests/test_refusals.py.
"""

import dataclasses
import functools
import itertools
import json

import jax
import numpy as np
import pytest
from helpers import BUDGET, ENV, PLAIN, PRIVATE, refused

import fedbandit_jax as fb
from fedbandit_jax.engine import prepare
from fedbandit_jax.engine.options import Run
from fedbandit_jax.engine.prepare import describe_sweep, expand, set_up

ALGOS = {"plain": PLAIN, "ours": PRIVATE}
GROUPED = fb.algos.Grouped(grouping=fb.algos.Mixture(), policy=fb.algos.UCB())
GAP = fb.envs.gap(2, 4, 3)


def gap(n_agents):
    return fb.envs.gap(n_agents, 4, 3)


def points(env, grid, algos=ALGOS):
    return {label: one.coordinates for label, one in expand(env, algos, grid).items()}


def test_parameters_of_a_function_that_makes_environments():
    make = functools.partial(fb.envs.gap, n_arms=4)
    found = expand(make, ALGOS, {"n_agents": [2, 3], "dim": [3], "epsilon": [1, 5]})
    assert {label: one.coordinates for label, one in found.items()} == {
        **{f"plain(n_agents={m})": dict(algorithm="plain", n_agents=m, dim=3) for m in (2, 3)},
        **{
            f"ours(n_agents={m}, epsilon={epsilon})": dict(algorithm="ours", n_agents=m, dim=3, epsilon=epsilon)
            for m, epsilon in itertools.product((2, 3), (1, 5))
        },
    }
    for one in found.values():
        spec = one.env.spec
        assert (spec.n_agents, spec.n_arms, spec.dim) == (one.coordinates["n_agents"], 4, 3)
        if "epsilon" in one.coordinates:
            assert one.algo.privacy.budget.epsilon == one.coordinates["epsilon"]
    first, *others = [one.env for one in found.values() if one.coordinates["n_agents"] == 2]
    assert [env is first for env in others] == [True, True]  # so that its numbers are on the device once


def test_labels_and_coordinates():
    """Environments have names, parameters may say whose they are, and numbers of 32 bits are those that were typed."""
    envs = {"easy": GAP, "hard": fb.envs.gap(2, 4, 3, gap=0.05)}
    assert points(envs, {"failure": np.float32([0.1])}, {"plain": PLAIN}) == {
        f"plain(environment={name})": {"algorithm": "plain", "environment": name, "failure": 0.1} for name in envs
    }
    assert points(gap, {"env.n_agents": iter([2, 3])}, {"plain": PLAIN}) == {
        f"plain(env.n_agents={m})": {"algorithm": "plain", "env.n_agents": m} for m in (2, 3)
    }
    grid = {"policy.theta_norm": [0.5, 0.7], "privacy.budget.epsilon": [2.0]}
    found = expand(ENV, {"ours": PRIVATE, "grouped": GROUPED}, grid)
    assert {label: one.coordinates for label, one in found.items()} == {
        f"{name}(policy.theta_norm={x})": {"algorithm": name, "policy.theta_norm": x} | epsilon
        for name, epsilon in (("ours", {"privacy.budget.epsilon": 2.0}), ("grouped", {}))
        for x in (0.5, 0.7)
    }
    assert [one.algo.policy.theta_norm for one in found.values()] == [0.5, 0.7, 0.5, 0.7]
    assert found["ours(policy.theta_norm=0.5)"].algo.privacy.budget.epsilon == 2.0
    policies = [fb.algos.Greedy(shrinkage=3.0), fb.algos.Thompson()]  # are told in words and numbers
    told = describe_sweep(expand(ENV, {"ours": PRIVATE}, {"policy": policies}))
    kinds = [point["policy"] for point in json.loads(json.dumps(told["coordinates"])).values()]
    assert [(one["type"], one["shrinkage"]) for one in kinds] == [("Greedy", 3.0), ("Thompson", policies[1].shrinkage)]


@pytest.mark.slow
def test_a_sweep_over_agents_is_its_runs(key):
    options = dict(horizon=10, key=key, seeds=[3, 5])
    swept = fb.sweep(fb.envs.gap, ALGOS, grid={"n_agents": [2, 3], "n_arms": [4], "dim": [3]}, **options)
    for label, point in swept.coordinates.items():
        alone = fb.simulate(gap(point["n_agents"]), ALGOS[point["algorithm"]], **options)
        np.testing.assert_allclose(swept[label].regret, alone.regret, atol=1e-5)
        assert swept[label].certificate == alone.certificate
        assert swept[label].spec["n_agents"] == point["n_agents"]
    with pytest.raises(ValueError, match="several environments"):
        swept.spec  # noqa: B018
    assert "2 agents, 3 agents, T = 10 rounds, 2 seeds" in swept.summary()
    assert swept.summary().count("minus plain(n_agents=") == 2
    assert swept.sel(n_agents=3).spec["n_agents"] == 3


def test_programs_have_few_configurations(monkeypatch):
    """More are in several programs of even sizes."""
    points = expand(ENV, {"ours": PRIVATE}, {"epsilon": [0.5, 1.0, 2.0, 3.0, 5.0]})
    run = Run(horizon=20, key=jax.random.key(0), seeds=2)
    assert [len(group) for group in set_up(points, run).groups] == [5]
    monkeypatch.setattr(prepare, "TOGETHER", 2)
    groups = set_up(points, run).groups
    assert [len(group) for group in groups] == [2, 2, 1]
    assert [label for group in groups for label in group] == [*points]


@pytest.mark.parametrize(
    ("algo", "changes", "name"),
    [
        (PRIVATE, {"privacy": None}, "UCB"),
        (PRIVATE, {"epsilon": 2.0}, "Private-FedLinUCB"),
        (fb.algos.Federated(name="mine"), {"policy": fb.algos.Greedy()}, "mine"),
        (fb.algos.FCLUB(BUDGET), {"budget": None}, "FCLUB-DC"),
        (fb.algos.homo_dc(BUDGET), {"alpha_1": 1.0}, "CDP-FCLUB-DC"),
        (fb.algos.LinUCB(), {"failure": 0.2}, "LinUCB"),
    ],
)
def test_a_name_does_not_outlive_what_it_says(algo, changes, name):
    assert algo.replace(**changes).name == name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agents(fb.algos.Federated):
    n_agents: int = 5


def test_what_is_replaced():
    """A part before its parameters, and a parameter of two parts by its path."""
    budget = fb.privacy.Budget(1.0, 1e-3)
    changed = PRIVATE.replace(epsilon=2.0, budget=budget, exploration_scale=0.3, policy=fb.algos.UCB(failure=0.2))
    assert changed.privacy.budget == fb.privacy.Budget(2.0, 1e-3)
    assert changed.policy == fb.algos.UCB(failure=0.2, exploration_scale=0.3)
    for part in ("grouping", "policy"):
        changed = GROUPED.replace(**{f"{part}.theta_norm": 0.7})
        assert getattr(changed, part).theta_norm == 0.7
        assert dataclasses.replace(changed, **{part: getattr(GROUPED, part)}) == GROUPED
    (one,) = expand(gap, {"own": Agents()}, {"env.n_agents": [2], "algo.n_agents": [7]}).values()
    assert (one.env.spec.n_agents, one.algo.n_agents) == (2, 7)
    with refused("grid"):  # whose?
        expand(gap, {"own": Agents()}, {"n_agents": [2, 3]})
    for name in ("epsilon", "budget.epsilon", "privacy.budget.epsilon"):
        assert PRIVATE.takes(name)
        assert PRIVATE.replace(**{name: 2.0}).privacy == fb.privacy.Mechanism(dataclasses.replace(BUDGET, epsilon=2.0))
    for algo in (PLAIN, fb.algos.LinUCB()):
        assert not algo.takes("epsilon")
