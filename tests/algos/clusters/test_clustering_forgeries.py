"""Whoever changes what runs changes the certificate: private FCLUB with its doors or its horizon tampered with.

Its leaves and classes are changed in `tests/privacy/test_forgeries.py`.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, refused
from scripted_users import draws, play, population

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.fclub_loop import RAW_CLUSTERS, RAW_UPLOADS
from fedbandit_jax.interfaces import certify

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
