"""Whoever changes what runs changes the certificate: private FCLUB with its noise, doors or horizon tampered with."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from scripted_users import draws, play, population

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.fclub_rounds import RAW_CLUSTERS, RAW_UPLOADS, BoundFCLUB
from fedbandit_jax.engine.clocks import ArrivalClock
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.phase_trees import Replanted

A, T, SIZE = fb.algos, 30, (8, 3)
SPEC = population(*SIZE)
BUDGET = fb.privacy.Budget(1.0, 0.01)
HONEST = A.FCLUB(BUDGET, alpha_1=math.inf, trigger="count", upload=1.2, alpha_2=0.3)


@pytest.fixture(scope="module")
def bound():
    return HONEST.bind(SPEC, T)


@pytest.mark.slow
def test_the_honest_run_is_certified(bound):
    certificate = certify(bound)
    assert certificate == HONEST.certificate(SPEC, T)
    assert certificate.claim == "certified"
    assert 1 - 1e-5 < certificate.epsilon_exact <= 1
    assert bound.raw == ()
    env = fb.envs.clustered(8, 3, 2, dim=3)
    result = fb.simulate(env, HONEST, horizon=T, key=jax.random.key(0), seeds=1)
    assert result.certificate == HONEST.certificate(env.spec, T)


def sub(noise, **changes):
    return lambda bound: bound.replace(noise=dataclasses.replace(bound.noise, **changes))


@fb.pytree
class Silent(Replanted):
    """Trees without noise."""

    def first(self, key, phase, slot, dim):
        return 0 * super().first(key, phase, slot, dim)


@fb.pytree
class Serving(BoundFCLUB):
    """Clusters users by raw data in another way."""

    def serve(self, key, t, state, user, x, y):
        return super().serve(key, t, state, user, x, y)


@fb.pytree
class Wrapped(fb.ArrivalAlgorithm):
    """Whatever another algorithm does."""

    inner: BoundFCLUB

    def guarantee(self):
        return self.inner.guarantee()


def as_kind(kind, value):
    return kind(**{field.name: getattr(value, field.name) for field in dataclasses.fields(value)})


FORGERIES = {  # what is done to a bound algorithm -> what is claimed of privacy
    "no noise": (lambda b: b.replace(std=np.float32(0)), math.inf),
    "a tenth of the noise": (lambda b: b.replace(std=b.noise.std / 10), 10.0),
    "a tenth of the noise, from outside": (
        lambda b: dataclasses.replace(b, noise=dataclasses.replace(b.noise, std=b.noise.std / 10)),
        10.0,
    ),
    "noise that is no number": (lambda b: b.replace(std=np.float32(math.nan)), math.inf),
    "no noise on rewards": (lambda b: b.replace(std=b.noise.std * np.float32([1, 1, 1, 0])), math.inf),
    "no noise at all": (lambda b: b.replace(noise=None), None),
    "more leaves": (lambda b: b.replace(leaves=np.full(9, 99, np.int32)), 1.5),
    "two visits": (lambda b: b.replace(visits=2), 2.0),
    "zero_out": (lambda b: b.replace(adjacency="zero_out", std=b.noise.std / 2), 1.2),
    "links are cut": (lambda b: b.replace(alpha_1=np.float32(1.5)), math.inf),
    "links are cut by no number": (lambda b: b.replace(alpha_1=np.float32(math.nan)), math.inf),
    "some links are cut": (lambda b: b.replace(alpha_1=np.float32([math.inf, 1.0])), math.inf),
    "uploads by determinants": (lambda b: b.replace(counts=False), math.inf),
    "a smaller epsilon is asked for afterwards": (lambda b: b.replace(epsilon=0.5), 1.0),
    "a smaller delta is asked for afterwards": (lambda b: b.replace(delta=1e-9), 2.0),
    "another loop": (lambda b: as_kind(Serving, b), None),
    "other trees": (lambda b: b.replace(noise=as_kind(Silent, b.noise)), None),
    "a wrapper": (lambda b: Wrapped(inner=b), None),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_lose_the_claim(bound, name):
    """To "none", with the epsilon that the noise really gives, or none at all."""
    change, least = FORGERIES[name]
    certificate = certify(change(bound))
    assert certificate.claim == "none"
    if least is None:
        assert certificate.epsilon_exact is None
    else:
        assert certificate.epsilon_exact >= least * (1 - 1e-5)


def test_doors_say_what_is_read(bound):
    assert bound.replace(alpha_1=np.float32(1.5)).raw == (RAW_CLUSTERS,)
    assert bound.replace(counts=False).raw == (RAW_UPLOADS,)
    certificate = certify(bound.replace(alpha_1=np.float32(1.5), counts=False))
    assert certificate.not_covered[:2] == (RAW_CLUSTERS.seen, RAW_UPLOADS.seen)
    assert RAW_CLUSTERS.why in certificate.reason
    assert RAW_UPLOADS.why in certificate.reason


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weak(A.FCLUB):
    """A recipe that binds a tenth of the noise, and says otherwise."""

    def bind(self, spec, horizon):
        bound = super().bind(spec, horizon)
        return bound.replace(std=bound.noise.std / 10)

    def certificate(self, spec, horizon):
        return HONEST.certificate(spec, horizon)


@pytest.mark.slow
def test_a_recipe_cannot_speak_for_what_it_binds(key):
    env = fb.envs.clustered(8, 3, 2, dim=3)
    weak = Weak(BUDGET, alpha_1=math.inf, trigger="count", upload=1.2)
    certificate = fb.simulate(env, weak, horizon=T, key=key, seeds=1).certificate
    assert certificate.claim == "none"
    assert certificate.epsilon_exact > 10


def test_one_budget_for_all_servers():
    with pytest.raises(TypeError, match=r"budget must be an fb\.privacy\.Budget or None, got \["):
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


def leaves_used(uploads, tree, n_phases):
    """Leaves of every tree that some seat's releases have used, one each being shown when a phase begins."""
    used = np.ones(n_phases, int)
    for t in range(len(uploads)):
        used[tree[t] - 1] = max(used[tree[t] - 1], 1 + uploads[t].max())
    return used


@pytest.mark.parametrize(
    ("change", "options"),
    deep(
        [
            ({}, {}),  # honest, but for the horizon
            ({"upload": np.float32(1.0)}, {"upload": 3.0}),
            ({"upload": np.float32(1.0), "max_uploads": np.int32(10**6)}, {"max_uploads": 1}),
            ({"upload": np.float32(1.0), "alpha_2": np.float32(0.01)}, {"alpha_2": math.inf}),
            (
                {"upload": np.float32(1.0), "alpha_2": np.float32(math.inf), "max_uploads": np.int32(99)},
                {"max_uploads": 2},
            ),
        ],
        keep={2},
    ),
)
def test_trees_are_not_overdrawn(key, change, options):
    """Four times the horizon, uploads every round, phases that should not renew: kappa nodes a datum at most."""
    bound = dataclasses.replace(HONEST, **options).bind(SPEC, T).replace(**change)
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
    nodes = sum(int(leaves).bit_length() for leaves in leaves_used(uploads, tree, n_phases))
    assert nodes <= bound.noise.releases_per_user + 1
    if "upload" in change:
        assert uploads.max() == room[n_phases] - room[tree[-1] - 1]  # it would have gone on


@pytest.mark.slow
def test_a_process_of_another_horizon(key):
    """The same through the clock: no phase beyond those that were calibrated is counted as uploads."""
    env = fb.envs.clustered(8, 3, 2, dim=3)
    bound = HONEST.bind(env.spec, 14)  # phases of 2, 4 and 8 rounds
    clock = ArrivalClock(env=env, algo=bound, horizon=62)

    @jax.jit
    def step(key, world, state, k):
        return clock.step(key, world, state, k)

    world, state = jax.jit(clock.init)(key)
    for k in range(clock.n_steps):
        world, state, metrics = step(key, world, state, k)
        if k == 0:
            early = state
    assert metrics.report.status == 0
    np.testing.assert_array_equal(state.released, early.released)
    assert state.tree <= 3
    assert state.uploads.max() <= 14


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
    with pytest.raises(ValueError, match="was bound to another environment"):
        fb.simulate(four, bound, horizon=20, key=jax.random.key(0), seeds=1)
    assert certify(bound).claim == "certified"
    assert certify(bound.replace(spec=four.spec)).claim == "none"
