"""Private FCLUB with its doors or its horizon tampered with loses its claim; environments that break their spec.

Leaves and classes are changed in `tests/privacy/test_forgeries.py`.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, refused, stepped
from scripted_users import draws, play, population

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.fclub_loop import RAW_CLUSTERS, RAW_UPLOADS
from fedbandit_jax.engine.runners import Sequential
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.budget import matrix_sensitivity_sq

A, T = fb.algos, 30
SPEC = population(8, 3)
BUDGET = fb.privacy.Budget(1.0, 0.01)
HONEST = A.FCLUB(BUDGET, alpha_1=math.inf, trigger="count", upload=1.2, alpha_2=0.3)


@pytest.fixture(scope="module")
def bound():
    return HONEST.bind(SPEC, T)


def test_doors_say_what_is_read(bound):
    assert bound.raw == ()
    assert bound.replace(alpha_1=np.float32(1.5)).raw == (RAW_CLUSTERS,)
    assert bound.replace(counts=False).raw == (RAW_UPLOADS,)
    certificate = certify(bound.replace(alpha_1=np.float32(1.5), counts=False))
    assert certificate.not_covered[:2] == (RAW_CLUSTERS.seen, RAW_UPLOADS.seen)
    assert certificate.claim == "none"


def test_one_budget_for_all_servers():
    with refused("budget"):
        dataclasses.replace(HONEST, budget=[BUDGET, fb.privacy.Budget(1.0, 1e-9)])


# --- Trees show no more than what they were calibrated for, however long and however often they are asked ---


def shown(bound, key, horizon, n_users=8):
    """Of a run of that many rounds: uploads after every round by seat, tree in use, what was released last."""
    given = draws(0, n_users, horizon=horizon)
    spec = population(n_users, 3)

    @jax.jit
    def run(rows):
        def one(state, row):
            t, user, x, y = row
            state, _ = bound.begin(key, t, state)
            state, _ = bound.serve(key, t, state, user, x[0], y[0])
            return state, (state.uploads, state.tree, state.released)

        return jax.lax.scan(one, bound.init(key, spec), rows)[1]

    rows = jnp.arange(horizon), given.users, given.contexts, given.rewards
    return map(np.asarray, run(rows))


@pytest.mark.parametrize(
    ("change", "options"),
    deep(
        [
            ({}, {}),  # honest, but for the horizon
            ({"upload": 1.0, "max_uploads": 10**6}, {"max_uploads": 1}),
            ({"upload": 1.0, "alpha_2": 0.01}, {"alpha_2": math.inf}),
        ],
        keep={1},
    ),
)
def test_trees_are_not_overdrawn(key, change, options):
    """Four times the horizon, uploads every round, phases that should not renew: kappa nodes a datum at most."""
    bound = dataclasses.replace(HONEST, **options).bind(SPEC, T)
    bound = bound.replace(**{name: type(getattr(bound, name))(value) for name, value in change.items()})
    assert certify(bound).claim == "certified"
    uploads, tree, released = shown(bound, key, 4 * T)
    n_phases = bound.noise.n_phases
    assert n_phases == 4
    assert tree.max() <= n_phases
    last = 2**n_phases - 2  # when the last phase begins for which there is noise
    np.testing.assert_array_equal(released[last:], np.broadcast_to(released[last], released[last:].shape))
    assert not np.array_equal(released[last - 1], released[last])
    room = np.concatenate([[0], np.cumsum(bound.noise.leaves - 1)])
    for t in range(4 * T):
        phase = min(int(t + 2).bit_length() - 1, n_phases)
        assert uploads[t].max() <= room[phase] - room[tree[t] - 1]
    used = [1 + uploads[tree == phase].max(initial=0) for phase in range(1, n_phases + 1)]  # leaves, of some seat
    nodes = sum(int(leaves).bit_length() for leaves in used)
    assert nodes <= bound.noise.releases_per_user + 1
    if "upload" in change:
        assert uploads.max() == room[n_phases] - room[tree[-1] - 1]  # it would have gone on


@pytest.mark.slow
def test_an_upload_that_failed_is_not_tried_again(key):
    """Without its shift a sum with noise is seldom positive definite: whether it is tells of one message only."""
    bound = HONEST.bind(SPEC, T).replace(rho=np.float32(0))
    uploads, tree, _ = shown(bound, key, T)
    stopped = uploads > bound.noise.leaves.sum()
    assert stopped.any()
    for t in range(1, T):
        if tree[t] == tree[t - 1]:
            assert (uploads[t][stopped[t - 1]] == uploads[t - 1][stopped[t - 1]]).all()
    played = play(bound, key, draws(0, 8, horizon=T), SPEC)
    assert played.status[-1] & fb.Status.NO_ESTIMATE


def test_bound_for_other_servers():
    """A server's noise protects users of the servers that it was bound for, and no others."""
    one, four = (fb.envs.clustered(n_users=8, n_servers=n, n_clusters=2, dim=3) for n in (1, 4))
    bound = fb.algos.homo_dc(fb.privacy.Budget(1.0, 0.1), trigger="count").bind(one.spec, 20)
    with refused("algo"):
        fb.simulate(four, bound, horizon=20, key=jax.random.key(0), seeds=1)
    assert certify(bound).claim == "certified"
    assert certify(bound.replace(spec=four.spec)).claim == "none"


# Users who do not exist, rewards and features that are too large.


ENV = fb.envs.clustered(9, 2, 3, dim=4, n_arms=4)
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
    limit = np.sqrt(matrix_sensitivity_sq("zero_out"))
    weights = np.array([[np.sqrt(2), 1, 1, 1], [1, np.sqrt(2), 1, 1], [1, 1, np.sqrt(2), 1]])
    for x in ([1, 0, 0], [100, 0, 0], [1e30, 0, 0], [np.nan, 1, 0], [np.inf, 1, 0], [0.6, 0.8, 0]):
        for y in (1.0, 50.0, -3.0, np.nan, np.inf):
            moved = np.asarray(sums(np.float32(x), np.float32(y)))
            assert np.isfinite(moved).all()
            assert np.linalg.norm(np.triu(moved / weights)) <= limit * (1 + 1e-5)
