"""Limits and orderings: zero noise, one agent, batch of one, and what the paper reports."""

import itertools

import examples as ex
import numpy as np
import pytest
from helpers import deep, regrets

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify

BUDGET, HALF = fb.privacy.Budget(1.0, 0.1), fb.privacy.Linear(centred=True, gram_scale=0.5)


@pytest.mark.slow
def test_one_silo_is_the_central_model_exactly(key):
    """Nobody else is there to be trusted or not: the same noise, the same draws, the same epsilon."""
    env = fb.envs.sphere(1, 8, 5, rewards="bernoulli")
    algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=10, privacy=BUDGET)
    silo, central = (algo.replace(trust=trust).bind(env.spec, 100) for trust in ("silo_local", "central"))
    np.testing.assert_array_equal(regrets(env, silo, 100, key), regrets(env, central, 100, key))
    assert certify(silo).epsilon_exact == certify(central).epsilon_exact


def test_one_agent_is_lin_ucb(key):
    env = fb.envs.sphere(1, 8, 5)
    one = regrets(env, fb.algos.fed_lin_ucb(schedule=20).bind(env.spec, 200), 200, key)
    alone = regrets(env, fb.algos.LinUCB().bind(env.spec, 200), 200, key)
    np.testing.assert_allclose(one, alone, atol=1e-4)


@pytest.mark.slow
def test_a_threshold_out_of_reach_is_independent_agents():
    """Nobody synchronises: every agent is alone with V_i, as with one agent each, if widths are 0."""
    greedy = fb.algos.UCB(exploration_scale=0.0)
    never = ex.play(
        ex.SCRIPT, fb.algos.Federated(schedule=fb.schedules.LogDet(1e9), learns_in_batch=True, policy=greedy)
    )
    assert not never.synced.any()
    alone = ex.play(ex.SCRIPT, fb.algos.LinUCB(policy=greedy))
    np.testing.assert_allclose(never.gaps, alone.gaps, atol=1e-4)


def final(result, label):
    return result[label].regret[:, -1]


def assert_in_order(result, *order, quantile):
    """The regret of each is less than that of the next one, by a quantile of Student's t, over paired seeds."""
    for better, worse in itertools.pairwise(order):
        difference = final(result, worse) - final(result, better)
        assert difference.mean() > quantile * difference.std(ddof=1) / len(difference) ** 0.5, (better, worse)


@pytest.mark.slow
def test_orderings_of_the_paper(key):
    """99.9 % over paired seeds, as listed below; tight beats the theorem, greedy play under secagg beats no privacy."""
    env = fb.envs.sphere(20, 20, 5, rewards="bernoulli")

    def private(*budget, **options):
        return fb.algos.private_fed_lin_ucb(fb.privacy.Mechanism(fb.privacy.Budget(*budget), **options))

    algos = {
        "plain": fb.algos.fed_lin_ucb(),
        "alone": fb.algos.LinUCB(),
        **{str(b): private(*b) for b in itertools.product((0.2, 1.0, 5.0), (0.1, 1e-4))},
        "theorem": private(1.0, 0.1, std="theorem_5_1"),
        "secagg": private(1.0, 0.1, trust="secagg", release="blt"),
        "vector sum": private(1.0, 0.1, trust="shuffle_vector_sum"),
        "local": private(1.0, 0.1, trust="local", release="input_perturbation"),
        "blt": (blt := private(1.0, 0.1, release="blt")),
        "known noise": blt.replace(confidence="known_noise"),
        "greedy": fb.algos.Federated(
            policy=fb.algos.Greedy(),
            schedule=fb.schedules.Geometric(1.5, first=3),
            privacy=fb.privacy.Mechanism(BUDGET, fb.privacy.Decaying(1.5), trust="secagg", statistic=HALF),
        ),
    }
    result = fb.sweep(env, algos, horizon=1000, key=key, seeds=12, stride=100)
    ours = str((1.0, 0.1))
    for order in (
        ("plain", "alone"),
        ("plain", "secagg", "vector sum", ours, "local"),
        ("known noise", "blt", ours),
        ("greedy", "plain"),
        ("plain", *(str((e, 0.1)) for e in (5.0, 1.0, 0.2))),
        (str((5.0, 1e-4)), str((1.0, 1e-4))),
        *((str((e, 0.1)), str((e, 1e-4))) for e in (1.0, 5.0)),
    ):
        assert_in_order(result, *order, quantile=4.44)  # 0.9995 with 11 degrees of freedom
    assert (final(result, ours) < final(result, "theorem")).all()
    assert {result.certificates[label].claim for label in algos} == {"none", "certified"}


SHORT = ["Private-FedLinUCB", "known noise", "Greedy", "Thompson, central", "vector sums", "Gossip"]


@pytest.mark.parametrize("name", deep(SHORT, keep={0}))
def test_a_horizon_shorter_than_a_batch(name):
    """Nothing is released, and nothing has to be paid for."""
    row = ex.EXAMPLES[name]
    result = ex.simulate(row.env, row.algo.replace(schedule=ex.T + 1))
    assert (result.regret[:, -1] > 0).all()
    assert (result.communication["rounds"] == 0).all()
    assert result.certificate.claim == "certified"
