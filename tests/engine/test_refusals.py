"""Combinations, names and user-defined parts that cannot be simulated or replaced are refused before compilation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BUDGET, ENV, PLAIN, PRIVATE, refused, simulate, sweep

import fedbandit_jax as fb
from fedbandit_jax.engine import driver

LONG = fb.envs.script(np.full((40, 3, 4, 5), 3.2 / np.sqrt(5)), np.zeros((40, 3, 4)))
GROUPED = fb.algos.Grouped(grouping=fb.algos.Mixture(), policy=fb.algos.UCB(theta_norm=2.0))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"stride": 3}, "stride"),
        ({"sead": 1}, "sead"),
        ({"env": LONG}, "max_norm"),
        ({"checkpoint": "/proc/none/run"}, "checkpoint's folder"),
    ],
)
def test_bad_input(change, argument, monkeypatch):
    monkeypatch.setattr(driver, "run_program", lambda *a, **k: pytest.fail("compiled before checking"))
    with refused(argument) as found:
        simulate(**change)
    assert argument != "sead" or "did you mean 'seeds'" in str(found.value)
    with refused("key"):  # if there is none
        fb.simulate(ENV, PRIVATE, horizon=3)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("algos", "grid", "argument"),
    [
        ([PRIVATE, PRIVATE], None, "algos"),
        (PRIVATE, None, "algos"),
        ({1: PRIVATE}, None, "algos"),
        ({"P(epsilon=1)": fb.algos.LinUCB(), "P": PRIVATE}, {"epsilon": [1, 2]}, "algos"),
        ([PRIVATE], {"epsilom": [1]}, "grid"),
        ([PLAIN], {"std": [None]}, "grid"),
        *(([PRIVATE], {"epsilon": values}, "grid['epsilon']") for values in ([], 1, [1, 1.0])),
        ([PRIVATE], {"epsilon": [1, -1]}, "epsilon"),
    ],
)
def test_bad_sweeps(algos, grid, argument):
    with refused(argument):
        sweep(algos, grid=grid)


WRONG = {  # argument -> what of `PRIVATE` is replaced
    "schedule": [{"schedule": 2000, "learns_in_batch": True}],
    "theta_norm": [{"theta_norm": 0.0, "confidence": "known_noise"}],
    "release": [{"trust": "local"}],
    **{name: [{name: 2.0}] for name in ("epsilom", "policy.epsilon", "get.epsilon", "", "policy.")},
    "exploration_scale": [{"policy.exploration_scale": -1}],
    "epsilon": [{"privacy.budget.epsilon": "much"}, {"epsilon": 2.0, "budget.epsilon": 2.0}],
    "policy": [{"policy": 3}],
}


@pytest.mark.parametrize("argument", WRONG)
def test_bad_replacements(argument):
    for options in WRONG[argument]:
        with refused(argument):
            PRIVATE.replace(**options)


def test_widths_must_fit_float32():
    with refused("the confidence width"):
        simulate(algo=PRIVATE.replace(exploration_scale=3e38))
    large, env = dict(exploration_scale=1e38, theta_norm=1e38), fb.envs.clustered(4, 2, 2, dim=3)
    policies = fb.algos.LinUCB(policy=fb.algos.UCB(**large)), fb.algos.Federated(policy=fb.algos.LogDetUCB(**large))
    for algo, spec in zip((fb.algos.CLUB(**large), *policies), (env.spec, env.spec, ENV.spec)):
        with refused("the confidence width") as found:
            algo.bind(spec, 64)
        assert 9e75 < found.value.value < 1e77


def test_failures_that_are_large_enough_to_divide():
    policy = fb.algos.Forgetting(policy=fb.algos.UCB(failure=1e-30), memory=fb.privacy.Discounted(0.5))
    with refused("failure / S", 5e-31):
        fb.algos.Federated(policy=policy, schedule=5).bind(ENV.spec, 10)


def update(self, k, belief, released):
    return released.bias


def index(self, key, t, belief, contexts):
    return contexts[:, 0]


def frozen(self, key, t, belief, contexts):
    return contexts[:, 0] * np.random.default_rng().normal()


def undecorated(kind):
    return kind


def made(base=fb.Policy, decorate=fb.pytree, **body):
    return decorate(type("Own", (base,), body))()


@pytest.mark.parametrize(
    ("part", "argument"),
    [
        (made(decorate=undecorated, update=update, index=index), "policy"),
        (made(update=update, index=index, mode="a", __annotations__={"mode": str}), "policy"),
        (made(index=index), "policy"),
        (made(update=update), "policy"),
        (made(update=update, index=lambda *given: None), "Own.index"),
        (made(update=update, index=frozen), "Own's act"),
        (made(fb.Algorithm, undecorated, init=lambda self, key, spec: jnp.zeros(())), "algorithm 'algorithm'"),
    ],
)
def test_parts_that_are_not_finished(part, argument):
    with refused(argument):
        simulate(algo=part if isinstance(part, fb.Algorithm) else fb.algos.Federated(policy=part, schedule=5))


@pytest.mark.parametrize(
    "call", [lambda x: simulate(key=jax.random.key(x)).regret, lambda x: simulate().regret[0, 0] + x]
)
def test_a_program_cannot_run_programs(call):
    with pytest.raises(TypeError, match=r"traced ones: .* use fb.rollout"):
        jax.jit(call)(jnp.uint32(3))


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


def test_a_part_is_replaced_before_its_parameters():
    budget = fb.privacy.Budget(1.0, 1e-3)
    changed = PRIVATE.replace(epsilon=2.0, budget=budget, exploration_scale=0.3, policy=fb.algos.UCB(failure=0.2))
    assert changed.privacy.budget == fb.privacy.Budget(2.0, 1e-3)
    assert changed.policy == fb.algos.UCB(failure=0.2, exploration_scale=0.3)


def test_a_parameter_of_two_parts_has_two_paths():
    """It is none of either without a path, which the end of a path is."""
    for ask in (lambda: GROUPED.replace(theta_norm=0.7), lambda: GROUPED.takes("theta_norm")):
        with refused("theta_norm"):
            ask()
    for path in ("grouping.theta_norm", "policy.theta_norm"):
        part = path.partition(".")[0]
        changed = GROUPED.replace(**{path: 0.7})
        assert getattr(changed, part).theta_norm == 0.7
        assert dataclasses.replace(changed, **{part: getattr(GROUPED, part)}) == GROUPED
    for name in ("epsilon", "budget.epsilon", "privacy.budget.epsilon"):
        assert PRIVATE.takes(name)
        assert PRIVATE.replace(**{name: 2.0}).privacy == fb.privacy.Mechanism(dataclasses.replace(BUDGET, epsilon=2.0))
    for algo in (PLAIN, fb.algos.LinUCB()):
        assert not algo.takes("epsilon")


@pytest.mark.parametrize("name", ["n_syncs", "batch"])
def test_what_was_bound_together_is_not_replaced_apart(name):
    with refused(name):
        PRIVATE.bind(ENV.spec, 40).replace(**{name: 7})
