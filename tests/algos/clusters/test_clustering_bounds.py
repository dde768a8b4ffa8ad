"""Environments that break their spec: users who do not exist, rewards and features that are too large."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, stepped
from scripted_users import draws, population

import fedbandit_jax as fb
from fedbandit_jax.engine.runners import Sequential
from fedbandit_jax.envs._wrapper import Wrapper

A, N = fb.algos, 9
ENV = fb.envs.clustered(N, 2, 3, dim=4, n_arms=4)
ALGOS = [
    A.LinUCB(),
    A.CLUB(alpha_edge=0.5),
    A.SCLUB(alpha_theta=0.3, alpha_p=0.3),
    A.FCLUB(upload=1.2, download=1.1, alpha_1=0.6, alpha_2=0.6),
    A.FCLUB(fb.privacy.Budget(300.0, 0.1), trigger="count", shift="once", alpha_1=0.6, alpha_2=0.6),
]
OUTSIDE = int(fb.Status.OUTSIDE_SPEC)


@fb.pytree
class Damaged(Wrapper):
    """An environment that breaks its promises: numbers, so that one program serves all ways of doing so."""

    strange: bool = False  # does somebody else come in every fifth round?
    user: int = 0
    scale: float = 1.0  # of features in every fifth round
    factor: float = 1.0  # of rewards whose first feature is large
    offset: float = 0.0

    @property
    def n_clusters(self):
        return self.env.n_clusters

    def observe(self, key, world, t):
        offered, _ = self.env.observe(key, world, t)
        bad = t % 5 == 0
        contexts = jnp.where(bad, self.scale * offered.contexts, offered.contexts)
        return offered._replace(contexts=contexts, user=jnp.where(bad & self.strange, self.user, offered.user)), world

    def pull(self, key, world, offered, arms):
        feedback = self.env.pull(key, world, offered, arms)
        changed = self.factor * feedback.reward + self.offset
        return feedback._replace(reward=jnp.where(offered.contexts[0, arms, 0] > 0.3, changed, feedback.reward))

    def clusters(self, world):
        return self.env.clusters(world)


DAMAGES = {
    "honest": {},
    "none": dict(factor=0.0),
    "large": dict(factor=0.0, offset=1.0),
    "stranger": dict(user=-1),
    "another": dict(user=10**6),
    "no number": dict(offset=math.nan),
    "below": dict(factor=-1.0, offset=-1.0),
    "above": dict(offset=2.5),
    "long": dict(scale=3.0),
    "rounded": dict(scale=1 + 1e-6),
    "nowhere": dict(scale=math.nan),
}


def told(state, metrics):
    return metrics.gap, metrics.report.status


def test_broken_promises(key):
    """Rewards are clipped, users who do not exist leave nothing, long features are scaled, and all is told."""
    bound, horizon = ALGOS[0].bind(ENV.spec, 60), 60

    def run(env):
        runner = Sequential(env=env, algo=bound, horizon=horizon, block=horizon)
        return stepped(told, runner, np.arange(1), key)[1]

    envs = [Damaged(env=ENV, spec=ENV.spec, strange="user" in one, **one) for one in DAMAGES.values()]
    found = jax.jit(jax.vmap(run))(jax.tree.map(lambda *x: np.stack(x), *envs))
    gaps, status = ({name: x[i].ravel() for i, name in enumerate(DAMAGES)} for x in map(np.asarray, found))
    pairs = ("stranger", "another"), ("no number", "none"), ("below", "none"), ("above", "large")
    for wrong, right in pairs:
        np.testing.assert_array_equal(gaps[wrong], gaps[right])
        assert not np.array_equal(gaps[wrong], gaps["honest"])
    assert {name for name in DAMAGES if not status[name]} == {"honest", "none", "large", "rounded"}
    assert all(one & OUTSIDE for one in status.values() if one)
    assert all((gaps[name][::5] > 0).any() for name in ("honest", "none", "large"))
    assert (gaps["stranger"][::5] == 0).all()
    np.testing.assert_allclose(gaps["long"][1:5], gaps["honest"][1:5], atol=1e-5)  # until two indices are close


@pytest.mark.parametrize("algo", deep(ALGOS, keep={0, 2}), ids=lambda algo: algo.name)
def test_strangers_leave_nothing(key, algo):
    """Not even where some seats are empty."""
    spec, given = population(8, 3), draws(0, 8, horizon=40)
    bound = algo.bind(spec, 60)

    @jax.jit
    def served(state, t, user, x, y):
        state, _ = bound.begin(key, t, state)
        return state, *bound.serve(key, t, state, user, x, y)

    state = jax.jit(bound.init, static_argnums=1)(key, spec)
    for t in range(40):
        _, state, _ = served(state, t, given.users[t], given.contexts[t, 0], given.rewards[t, 0])
    before, after, report = served(state, 40, np.int32(8), given.contexts[0, 0], np.float32(1))
    jax.tree.map(np.testing.assert_array_equal, before, after)
    assert report.status == 0
    _, other, _ = served(state, 40, np.int32(7), given.contexts[0, 0], np.float32(1))
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, before, other)))


def test_private_sums_move_no_more_than_by_one_user(key):
    """For any features and any reward, also of those who break their promises."""
    spec = population(8, 3)
    bound = ALGOS[4].bind(spec, 60)
    state, _ = jax.jit(lambda: bound.begin(key, 0, bound.init(key, spec)))()
    sums = jax.jit(lambda x, y: bound.serve(key, 0, state, 0, x, y)[0].sums.sum(0))
    limit = np.sqrt(fb.privacy.Budget(1.0, 0.1, "zero_out").matrix_sensitivity_sq)
    weights = np.array([[np.sqrt(2), 1, 1, 1], [1, np.sqrt(2), 1, 1], [1, 1, np.sqrt(2), 1]])
    for x in ([1, 0, 0], [100, 0, 0], [1e30, 0, 0], [np.nan, 1, 0], [np.inf, 1, 0], [0.6, 0.8, 0]):
        for y in (1.0, 50.0, -3.0, np.nan, np.inf):
            moved = np.asarray(sums(np.float32(x), np.float32(y)))
            assert np.isfinite(moved).all()
            assert np.linalg.norm(np.triu(moved / weights)) <= limit * (1 + 1e-5)
