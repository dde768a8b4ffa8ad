"""What privacy costs on a table: noise against the gain of the best arms, and what makes the gain doubtful."""

import re

import numpy as np
import pytest
from handmade import visits

import fedbandit_jax as fb
from fedbandit_jax.planning import evaluation
from fedbandit_jax.planning.demands import quietest
from fedbandit_jax.planning.price import price


def priced(log, **roles):
    env = fb.data.table(log, **{"silo": "hospital", "arm": "drug", "reward": "cured", **roles})
    return env, "\n".join(price(env))


@pytest.mark.parametrize(
    ("roles", "told"),
    [
        (dict(reward="noise", features=["age"]), "no better than the mean"),
        (dict(reward="cured", features=["after"]), "only after"),
    ],
)
def test_a_model_that_knows_nothing_or_everything_is_doubted(roles, told):
    """Of pure noise the best arms seem to gain, too; an outcome among the features explains the reward."""
    log = visits()
    log |= {"after": log["cured"], "noise": np.random.default_rng(0).permutation(log["cured"])}
    assert told in priced(log, **roles)[1]


def test_whose_word_propensities_are_and_which_silos_are_small():
    log = visits(60)
    drug = np.unique(log["drug"], return_inverse=True)[1]
    log["share"] = (np.bincount(drug) / 60)[drug]
    env, said = priced(log, propensity="p")
    assert f"{(env.counts < 10).sum()} of 3 silos with fewer than 10 replayed rows" in said
    assert evaluation.STATED in said
    assert evaluation.OF_SHARES in priced(log, propensity="share")[1]


def test_what_it_costs_to_protect_users():
    """By hand: noise of one visit to each of three silos, on the mean of an arm over first visits alone.

    The noise is that of centred rewards and half of x x', whose sensitivity is sqrt(9/8) in place of sqrt(9/2).
    """
    env, said = priced(visits(), features=["age"], user="patient")
    assert "M = 3 silos, K = 3 arms" in said
    silo = np.repeat(np.arange(3), env.counts)
    pairs = {(who, where) for who, where in zip(env.users.tolist(), silo.tolist())}
    silos = [len({where for one, where in pairs if one == who}) for who in {who for who, _ in pairs}]
    assert ", ".join(f"{silos.count(n)} come to {n}" for n in sorted(set(silos))) in said
    assert max(silos) == 3
    budget = fb.privacy.Budget(1.0, 1 / (10 * env.fit.replayed_rows))
    whole = dict(n_syncs=1, release="blt", n_agents=3, batch=env.fit.replayed_rows // 3, dim=env.fit.dim)
    for users, rows in ((fb.privacy.Users(1), env.fit.replayed_rows), (fb.privacy.Users(1, silos=3), len(pairs))):
        noise = [fb.privacy.calibrate(budget, trust=trust, users=users, **whole).model.sum_std()
                 for trust in ("silo_local", "secagg")]  # fmt: skip
        scale = float(env.rows[0, 0] * env.arms[0, 0]) * rows / 3
        shown = r" +".join(rf"{std / 2 / scale:.4f}(?: \(!\))?" for std in noise)
        assert re.search(rf"^1 +{shown}$", said, re.M)


def test_no_recipe_of_a_plan_adds_less_noise_than_the_table():
    """Its statistic, with one release of all rows, adds what the table shows, up to the digits and the rounding."""
    env, said = priced(visits(), features=["age"])
    shown = [float(number) for number in re.search(r"^1 +([\d.]+).* ([\d.]+)", said, re.M).groups()]
    rounds, fit = env.fit.replayed_rows // 3, env.fit
    budget = fb.privacy.Budget(1.0, 1 / (10 * fit.replayed_rows))
    for mean, trust in zip(shown, ("silo_local", "secagg")):
        privacy = fb.privacy.Mechanism(budget, "blt", trust, statistic=quietest(env.spec, trust))
        mechanism = fb.algos.Federated(schedule=rounds, privacy=privacy).bind(env.spec, rounds).mechanism
        scale = float(env.rows[0, 0] * env.arms[0, 0]) * fit.replayed_rows / fit.arms
        assert mechanism.batch_stds()[0] / scale == pytest.approx(mean, rel=2e-3, abs=6e-5)
