"""Private FCLUB with its leaks or its horizon tampered with loses its claim; environments that break their spec."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from scripted_users import draws, population, scan

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


def test_leaks_say_what_is_read(bound):
    assert bound.raw == ()
    assert bound.replace(alpha_1=np.float32(1.5)).raw == (RAW_CLUSTERS,)
    assert bound.replace(counts=False).raw == (RAW_UPLOADS,)
    certificate = certify(bound.replace(alpha_1=np.float32(1.5), counts=False))
    assert certificate.not_covered[:2] == (RAW_CLUSTERS.seen, RAW_UPLOADS.seen)
    assert certificate.claim == "none"
    other_servers = dataclasses.replace(SPEC, n_servers=4)  # a server's noise protects its users
    assert certify(bound.replace(spec=other_servers)).claim == "none"


# --- Trees show no more than what they were calibrated for, however long and however often they are asked ---


def uses(state, report):
    """Uploads of every seat so far, the tree in use, and what was released last."""
    exchanged = state.clusters.exchanged
    return exchanged.uploads, exchanged.tree, state.clusters.released


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
    numbers = {name: getattr(bound, name, None) or getattr(bound.exchange, name) for name in change}
    bound = bound.replace(**{name: type(numbers[name])(value) for name, value in change.items()})
    assert certify(bound).claim == "certified"
    uploads, tree, released = map(np.asarray, scan(bound, key, *draws(0, 8, horizon=4 * T), spec=SPEC, told=uses)[2])
    n_phases = bound.exchange.noise.n_phases
    assert n_phases == 4
    assert tree.max() <= n_phases
    last = 2**n_phases - 2  # when the last phase begins for which there is noise
    np.testing.assert_array_equal(released[last:], np.broadcast_to(released[last], released[last:].shape))
    assert not np.array_equal(released[last - 1], released[last])
    room = np.concatenate([[0], np.cumsum(bound.exchange.noise.leaves - 1)])
    for t in range(4 * T):
        phase = min(int(t + 2).bit_length() - 1, n_phases)
        assert uploads[t].max() <= room[phase] - room[tree[t] - 1]
    used = [1 + uploads[tree == phase].max(initial=0) for phase in range(1, n_phases + 1)]  # leaves, of some seat
    nodes = sum(int(leaves).bit_length() for leaves in used)
    assert nodes <= bound.exchange.noise.releases_per_user + 1
    if "upload" in change:
        assert uploads.max() == room[n_phases] - room[tree[-1] - 1]  # it would have gone on


# Users who do not exist, rewards and features that are too large.


ENV = fb.envs.clustered(9, 2, 3, dim=4, n_arms=4)
ALGOS = [
    A.LinUCB(),
    A.CLUB(alpha_edge=0.5),
    A.SCLUB(alpha_theta=0.3, alpha_p=0.3),
    A.FCLUB(upload=1.2, download=1.1, alpha_1=0.6, alpha_2=0.6),
    A.FCLUB(fb.privacy.Budget(300.0, 0.1), trigger="count", shift="once", alpha_1=0.6, alpha_2=0.6),
]


@fb.pytree
class Damaged(Wrapper):
    """An environment of one user and one reward, with features of another length, and gaps that are less."""

    user: int = 3
    scale: float = 1.0
    reward: float = 0.5
    less: float = 0.0

    def observe(self, key, world, t):
        offered, _ = self.env.observe(key, world, t)
        return offered._replace(contexts=self.scale * offered.contexts, user=jnp.full(1, self.user)), world

    def pull(self, key, world, offered, arms):
        found = self.env.pull(key, world, offered, arms)
        return found._replace(reward=jnp.full(1, self.reward), gap=found.gap - self.less)


DRAWN = jax.jit(lambda runner, key: runner._draw(key, runner.env.init(key), jnp.arange(20)))
DAMAGES = [  # what is changed, the user and the reward that are seen, and whether nothing is told
    ({}, 3, 0.5, True),
    (dict(user=-1), 9, 0.0, False),
    (dict(user=10**6), 9, 0.0, False),
    *((dict(reward=reward), 3, seen, False) for reward, seen in ((math.nan, 0.0), (-1.0, 0.0), (2.5, 1.0))),
    (dict(less=1e-4), 3, 0.5, True),
    (dict(less=5.0), 3, 0.5, False),
    (dict(scale=1 + 1e-6), 3, 0.5, True),
    (dict(scale=3.0), 3, 0.5, False),
    (dict(scale=math.nan), 3, 0.5, False),
]


def test_broken_promises(key):
    """Rewards are clipped, users who do not exist are nobody, long features are scaled, and all is told."""
    bound, lengths = ALGOS[0].bind(ENV.spec, 60), None
    for damage, user, reward, fine in DAMAGES:
        env = Damaged(env=ENV, spec=ENV.spec, **damage)
        offered, feedback, outside = jax.tree.map(np.asarray, DRAWN(Sequential(env=env, algo=bound, horizon=60), key))
        found = np.linalg.norm(offered.contexts, axis=-1)
        lengths = found if lengths is None else lengths
        np.testing.assert_allclose(found, np.minimum(np.nan_to_num(env.scale) * lengths, 1), rtol=1e-5)
        assert (offered.user == user).all()
        np.testing.assert_array_equal(feedback.reward, reward)
        assert (feedback.gap != 0).any() == (user < 9)
        np.testing.assert_array_equal(outside, not fine)


OTHERS = [A.AsyncFederated(schedule=2), A.Grouped(grouping=A.Together(), schedule=10)]


@pytest.mark.parametrize("algo", deep([*ALGOS, *OTHERS], keep={0, 2, 5}), ids=lambda algo: algo.name)
def test_strangers_leave_nothing(key, algo):
    """Not even where some seats are empty."""
    given = draws(0, 8, horizon=41)
    bound = algo.bind(SPEC, 60)
    state, _ = scan(bound, key, *(rows[:40] for rows in given), spec=SPEC)[-1]

    @jax.jit
    def served(user):
        before, _ = bound.begin(key, 40, state)
        return before, *bound.serve(key, 40, before, user, given.contexts[40, 0], jnp.float32(1))

    before, after, report = served(np.int32(8))
    jax.tree.map(np.testing.assert_array_equal, before, after)
    assert report.status == 0
    _, other, _ = served(np.int32(7))
    assert not all(jax.tree.leaves(jax.tree.map(np.array_equal, before, other)))


def test_private_sums_move_no_more_than_by_one_user(key):
    """For any features and any reward, also of those who break their promises."""
    bound = ALGOS[4].bind(SPEC, 60)
    state, _ = jax.jit(lambda: bound.begin(key, 0, bound.init(key, SPEC)))()
    sums = jax.jit(lambda x, y: bound.serve(key, 0, state, 0, x, y)[0].users.sums.sum(0))
    limit = np.sqrt(matrix_sensitivity_sq("zero_out"))
    weights = np.array([[np.sqrt(2), 1, 1, 1], [1, np.sqrt(2), 1, 1], [1, 1, np.sqrt(2), 1]])
    for x in ([1, 0, 0], [100, 0, 0], [1e30, 0, 0], [np.nan, 1, 0], [np.inf, 1, 0], [0.6, 0.8, 0]):
        for y in (1.0, 50.0, -3.0, np.nan, np.inf):
            moved = np.asarray(sums(np.float32(x), np.float32(y)))
            assert np.isfinite(moved).all()
            assert np.linalg.norm(np.triu(moved / weights)) <= limit * (1 + 1e-5)
