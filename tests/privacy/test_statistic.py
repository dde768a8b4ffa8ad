"""Statistics, linear and user-defined ones that weigh users: sensitivity, enforcement, what is summed."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.budget import ADJACENCY, MAX_NORM, matrix_sensitivity_sq, sensitivity_sq
from fedbandit_jax.privacy.statistic import Bounds

P, A, S = fb.privacy, fb.algos, fb.schedules
BUDGET = P.Budget(1.0, 0.1)
SPEC = fb.Spec(n_agents=3, n_arms=2, dim=3, max_norm=1.0, rewards_in_unit=True)
CONSTANT = dataclasses.replace(SPEC, constant=True)


def own(contribution, parent=P.Statistic, **attributes):
    """A user-defined class of statistics, whose users with features x and reward y add what a function says."""
    methods = {"contribution": lambda self, x, y, seen: contribution(x, y)}
    return dataclasses.dataclass(frozen=True)(type("Own", (parent,), methods | attributes))


def opinion(x, y):
    """Users with an opinion count more; they attain the largest move of any statistic with W = 1 and V = 1."""
    return y, 2 * y - 1


def anything(x, y):
    return jnp.where(x[0] > 0, 7.0, jnp.nan), jnp.where(x[0] > 0, -3.0, jnp.inf) * jnp.where(y > 0.5, 1, jnp.nan)


def responding(response, low=-1.0, high=1.0):
    return own(lambda x, y: (1.0, response(y)), responses=(low, high))()


def of_weight(most, response):
    return own(opinion, max_weight=most, responses=(-response, response))()


Opinion = own(opinion, responses=(-1.0, 1.0))
LOUD = dict(max_weight=0.05, responses=(-0.05, 0.05), weighted=False, clip=False, max_response=0.001)
Unweighted = own(lambda x, y: (1.0, y), **LOUD)  # says that weights do not differ, and has larger ones
Share = own(lambda x, y: (y, 1.0), P.Linear, weighted=True)  # a subclass of a proved one
# Ranges that are not around 0 are charged by their farther end.
SHIFTED = [responding(lambda y, a=a, b=b: a + (b - a) * y, a, b) for a, b in ((-1.0, 0.2), (-0.6, -0.5))]
ENDS = {  # of weights and of responses of two users
    P.Linear(): ([1.0], [0.0, 1.0]),
    P.Linear(centred=True): ([1.0], [-0.5, 0.5]),
    P.Linear(centred=True, gram_scale=0.2): ([0.2], [-0.5, 0.5]),
    of_weight(0.1, 1.0): ([0.0, 0.1], [-1.0, 1.0]),
    of_weight(0.25, 0.05): ([0.0, 0.25], [-0.05, 0.05]),
    Opinion(): ([0.0, 1.0], [-1.0, 1.0]),
}


@pytest.mark.parametrize("rule", ENDS)
def test_sensitivity_is_the_supremum(rule):
    """Over a grid of two users: never more than the formula, and as much to a part in 500."""
    a, b = (np.linspace(0, 1, 21)[shape] for shape in (np.s_[:, None, None], np.s_[None, :, None]))
    cosine, ends = np.linspace(-1, 1, 401)[None, None], [*itertools.product(*ENDS[rule])]
    moved = max(
        (
            (w * a**2) ** 2 + (z * b**2) ** 2 - 2 * w * z * (a * b * cosine) ** 2
            + (v * a) ** 2 + (u * b) ** 2 - 2 * v * u * a * b * cosine
        ).max()
        for (w, v), (z, u) in itertools.product(ends, ends)
    )  # fmt: skip
    found = BoundStatistic(2, rule=rule)
    assert moved <= found.sensitivity_sq("replace") + 1e-12
    assert found.sensitivity_sq("replace") <= moved * 1.002
    assert found.sensitivity_sq("zero_out") == pytest.approx(max(w**2 + v**2 for w, v in ends))


def test_sensitivities_are_those_of_the_papers():
    assert [sensitivity_sq(adjacency) for adjacency in ADJACENCY] == [4.5, 2.0]
    assert [matrix_sensitivity_sq(adjacency) for adjacency in ADJACENCY] == [4.0, 1.5]
    for adjacency in ADJACENCY:
        assert matrix_sensitivity_sq(adjacency) == pytest.approx(sensitivity_sq(adjacency, weight=0.5**0.5))


def test_bounds_of_the_logistic_statistic():
    """Its weights and responses over a grid of features, rewards and estimates: never beyond, and as far."""
    z = np.linspace(-9, 9, 1801, dtype=np.float32)
    for limit, most in ((0.5, 0.505), (2.0, 0.6708), (5.0, 0.9601)):
        rule = P.Logistic(limit=limit)
        contribution = jax.vmap(lambda z, rule=rule: rule.contribution(jnp.ones(1), jnp.float32(0), z[None]))
        w, v = (np.asarray(one, float) for one in jax.jit(contribution)(z))
        assert w.max() == pytest.approx(rule.max_weight, abs=1e-6)
        assert w.min() > 0
        assert max(abs(v).max(), abs(1 + v).max()) == pytest.approx(Bounds.of(rule).response, abs=1e-6)  # y is 0 or 1
        assert Bounds.of(rule).response == pytest.approx(most, abs=1e-3)


def test_a_logistic_step_is_newtons():
    """From theta, sum w x x' and sum x v solve to one step of Newton's method for the log-likelihood."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    x /= np.linalg.norm(x, axis=1)[:, None]
    truth, theta = np.array([1.0, -0.5, 0.3]), np.array([0.4, 0.1, -0.2])
    y = (rng.random(400) < 1 / (1 + np.exp(-x @ truth))).astype(float)
    w, v = jax.jit(jax.vmap(P.Logistic().contribution, (0, 0, None)))(x, y, theta)
    step = np.linalg.solve((x.T * w) @ x, x.T @ v)
    mu = 1 / (1 + np.exp(-x @ theta))
    newton = theta + np.linalg.solve((x.T * (mu * (1 - mu))) @ x, x.T @ (y - mu))
    np.testing.assert_allclose(step, newton, rtol=1e-5)
    gram, bias = (x.T * w) @ x, x.T @ v
    seen = jax.jit(P.Logistic().read)(np.float32(gram), np.float32(bias), np.float32(2.0))
    np.testing.assert_allclose(seen, np.linalg.solve(gram + (1 + 2 * 6**0.5 * 2) * np.eye(3), bias), rtol=1e-4)


def test_weighted_summands_are_symmetric():
    """To the bit: a difference of steps between both triangles would be shown without noise."""
    rng = np.random.default_rng(0)
    x = np.float32(rng.standard_normal((3, 4000)))
    x /= np.linalg.norm(x, axis=0)
    v = np.float32(np.stack([rng.uniform(0.1, 0.25, 4000), rng.uniform(-0.5, 0.5, 4000)]))
    privacy = P.Mechanism(BUDGET, trust="central", statistic=P.Logistic())
    mechanism = A.private_fed_lin_ucb(privacy, schedule=5).bind(SPEC, 20).mechanism
    square = np.asarray(jax.jit(mechanism.summands)(x, v))[:, :3]
    np.testing.assert_array_equal(square, np.swapaxes(square, 0, 1))


def admitted(rule, x, y):
    return jax.jit(BoundStatistic(len(x), rule=rule).admit)(x, np.float32(y))


def test_bounds_are_enforced():
    """Weights and responses of one's own are clipped, 0 where they are not finite, and counted."""
    x = np.float32([[0.5, -0.5, 0.5, 0.5], [0, 0, 0, 0]])
    found = admitted(own(anything, max_weight=0.5, responses=(-0.25, 0.5))(), x, [1, 1, 0, 1])
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.v, [[0.5, 0, 0.5, 0.5], [-0.25, 0.5, 0, -0.25]])
    assert found.clipped.all()
    fine = admitted(Opinion(), x, [1, 0, 0.5, 2])
    assert fine.clipped.tolist() == fine.outside.tolist() == [False, False, False, True]
    assert admitted(Unweighted(), x, [0] * 4).clipped.all()  # weights alone
    assert admitted(P.Linear(centred=True), x, [1, 0, 0.5, 2]).v.tolist() == [0.5, -0.5, 0, 0.5]


def test_clipped_contributions_are_counted():
    """Heavy-tailed rewards: as many as are outside the range that was declared."""
    env = fb.envs.sphere(4, 3, 3, rewards="student_t", noise_std=1.0)
    algo = A.Federated(schedule=5, privacy=P.Mechanism(BUDGET, statistic=P.Linear(low=-1, high=2)))
    result = fb.simulate(env, algo, horizon=400, key=jax.random.key(0), seeds=2, progress=False)
    share = result.counts["contributions clipped"][:, -1].mean() / 1600
    assert 0.15 < share < 0.35  # of z + T_3 beyond [-1, 2], z about 1/2


NO_STATISTICS = [  # what statistics cannot be
    (P.Statistic(), "statistic", "Statistic without it"),
    (own(lambda x, y: (1.0, x * y))(), "Own.contribution", "two numbers"),
    (own(lambda x, y: (1.0, None))(), "Own.contribution", "two numbers"),
    (own(lambda x, y: jax.debug.callback(print, y) or (1.0, y))(), "Own.contribution", "debug_callback"),
]


@pytest.mark.parametrize(("rule", "argument", "words"), NO_STATISTICS)
def test_refusals(rule, argument, words):
    with refused(argument) as found:
        A.Federated(schedule=5, privacy=P.Mechanism(BUDGET, statistic=rule)).bind(SPEC, 10)
    assert isinstance(found.value, fb.BadType)
    assert words in str(found.value)


def test_bounds_that_are_none():
    for argument, value, bound in (("max_weight", 2.0, 2.0), ("responses", 3.0, (0.0, 3.0))):
        with refused(f"Own.{argument}", value):
            own(opinion, **{argument: bound})()
    with refused("low"):
        P.Linear(low=2)


@pytest.mark.parametrize("rule", [Unweighted(gram_scale=20.0), Share(), *SHIFTED])
def test_what_a_statistic_says_of_itself_changes_nothing(rule):
    """Users move the packed sum by no more than the noise is for, whatever attributes of its own a statistic has."""
    bound = A.Federated(schedule=5, privacy=P.Mechanism(BUDGET, trust="central", statistic=rule)).bind(SPEC, 10)
    assert certify(bound).claim == "certified"
    one, rng = bound.mechanism.statistic, np.random.default_rng(0)
    x = rng.normal(size=(3, 400))
    users = np.float32(x / np.linalg.norm(x, axis=0)), np.float32(rng.integers(0, 2, 400))

    @jax.jit
    def packed(x, y):
        admitted = one.admit(x, y)
        rows = bound.mechanism.summands(admitted.x, admitted.v) * bound.mechanism.row_step
        return one.pack(jnp.moveaxis(rows, -1, 0))

    rows = np.asarray(packed(*users))
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=-1).max()
    most = one.sensitivity_sq("replace") ** 0.5
    assert 0.5 * most < apart <= most * MAX_NORM**2 + one.rounding(15)


def test_no_statistic_looks_at_two_users():
    """By a batching rule of this package or of one's own, or by the batch behind what it is given."""
    from jax.extend.core import Primitive
    from jax.interpreters import batching

    from fedbandit_jax.core.control import max_over_lanes

    crowd = Primitive("crowd")
    crowd.def_abstract_eval(lambda x: x)
    crowd.def_impl(lambda x: x)
    batching.primitive_batchers[crowd] = lambda given, dims: (given[0] + given[0].sum(), dims[0])

    def behind(y):
        while type(y).__name__ == "BatchTracer":
            y = y.val
        return jnp.max(y)

    for response in (max_over_lanes, crowd.bind):
        with pytest.raises(TypeError, match="pure function of its arguments"):
            A.Federated(schedule=5, privacy=P.Mechanism(BUDGET, statistic=responding(response))).bind(SPEC, 10)
    x, y = np.eye(3, dtype=np.float32), np.float32([0, 0, 1])
    np.testing.assert_array_equal(admitted(responding(behind), x, y).v[1], y)


def test_bounds_are_read_once(monkeypatch):
    bound = A.Federated(schedule=5, privacy=P.Mechanism(BUDGET, statistic=Opinion())).bind(SPEC, 10)
    before = certify(bound).epsilon_exact
    monkeypatch.setattr(Opinion, "responses", (-0.01, 0.01))
    one = bound.mechanism.statistic
    assert one.sensitivity_sq("replace") == 5
    assert certify(bound).epsilon_exact == before
    assert float(jax.jit(one.admit)(np.eye(3, dtype=np.float32), np.ones(3, np.float32)).v[1].max()) == 1
