"""When agents should first act on a release: the rule of `Greedy`, that it is kept and enough, and ridges like it."""

import jax
import numpy as np
import pytest

import fedbandit_jax as fb

A, P, S = fb.algos, fb.privacy, fb.schedules
GAP = fb.envs.gap(20, 10, 4)  # rewards are not centred, as no feature is constant
SPHERE = fb.envs.sphere(20, 10, 4, rewards="bernoulli")


def greedy(first=1, centred=False, **options):
    statistic = P.Linear(centred=centred, gram_scale=0.5 if centred else 0.5**0.5)
    privacy = P.Mechanism(P.Budget(1.0, 0.1), P.Decaying(1.5), statistic=statistic)
    return A.Federated(policy=A.Greedy(**options), schedule=S.Geometric(1.5, first=first), privacy=privacy)


def test_the_rule():
    """N = s max(d^(3/2), c d if rewards are not centred)."""
    assert A.Greedy(shrinkage=7.0).users(9, 2.0, True) == 2 * 27
    assert A.Greedy(shrinkage=7.0).users(9, 2.0, False) == 2 * 63
    assert A.Greedy(shrinkage=2.0).users(9, 2.0, False) == 2 * 27
    assert A.Greedy().users(9, 0.0, False) == 0


@pytest.mark.parametrize("centred", [True, False])
def test_the_first_release_is_late_enough(centred):
    """With its own noise, which is less than that of more releases; it is no later than that one asks for."""
    env = SPHERE if centred else GAP
    early, late = greedy(centred=centred), greedy(centred=centred).patient(env.spec, 1000)
    first = late.schedule.first
    needed = [
        one.policy.users(4, float(np.asarray(one.bind(env.spec, 1000).stds)[0]), centred) / 20 for one in (early, late)
    ]
    assert needed[1] <= first < needed[0] + 1
    assert first == {True: 5, False: 39}[centred]
    assert late == early.replace(schedule=S.Geometric(1.5, first=first))
    thompson = early.replace(policy=A.Thompson(shrinkage=12.0))
    assert thompson.patient(env.spec, 1000).schedule == late.schedule
    later = greedy(first=50, centred=centred)
    assert later.patient(env.spec, 1000) == later
    with pytest.warns(UserWarning, match="too few"):
        assert greedy(centred=centred).patient(env.spec, 5).schedule.first == 5
    assert A.Federated(policy=A.Greedy(), schedule=S.Geometric(1.5)).patient(env.spec, 1000).schedule.first == 1


def test_thompsons_ridge_grows_with_the_noise():
    """The posterior has precision lambda I + W, lambda the larger of the least one and c s."""
    gram, bias = np.diag([4.0, -2.0, 1.0]), np.array([1.0, 2.0, -1.0])
    released = fb.Released(*map(np.float32, (gram, bias, 10, 0.5)))
    for c, ridge in ((0.0, 1.5), (2.0, 1.5), (8.0, 4.0)):
        belief = jax.jit(A.Thompson(regularization=1.5, shrinkage=c).update)(0, None, released)
        np.testing.assert_allclose(belief.mean, bias / (np.diag(gram).clip(0) + ridge), rtol=1e-5)


@pytest.mark.slow
def test_the_rule_is_enough_where_a_gap_must_be_found():
    """Of 48 runs none has twice the median regret; after a release in round 5 more than one in seven has."""
    rule = greedy().patient(GAP.spec, 1000)
    result = fb.sweep(GAP, {"rule": rule, "early": greedy(5)}, horizon=1000, key=jax.random.key(5), seeds=48)
    worse = {name: np.mean((x := result[name].regret[:, -1]) > 2 * np.median(x)) for name in result}
    assert worse["rule"] == 0
    assert worse["early"] > 1 / 7
    assert result["rule"].regret[:, -1].mean() < result["early"].regret[:, -1].mean() / 2
