"""What is seen of clusters of users: covered by noise if certified, else glaring."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.audits.clusters import TranscriptOfVisits, _flat, labels, one_item, spec_of_visits, uploads
from fedbandit_jax.engine.runners import Sequential
from fedbandit_jax.envs import Script
from fedbandit_jax.interfaces import Report

BUDGET = fb.privacy.Budget(1.0, 0.1)
PRINTED = fb.algos.FCLUB(BUDGET, calibration="theorem")
EXACT = fb.algos.FCLUB(BUDGET)
HOMO = fb.algos.homo_dc(BUDGET, trigger="count")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, dict(alpha_1=3.0), dict(alpha_1=0.05, adjacency="zero_out")])
def test_one_round_cuts_a_link_at_any_threshold(key, options):
    """Local clusters show what noise does not hide: every one of 500 runs differs; at 99.9 % they can show 4.2."""
    audit = labels(PRINTED.replace(**options), name="printed").run(key, n_runs=1000)
    assert audit.epsilon_lower > 4
    assert not audit.same_control_flow


@pytest.mark.slow
@pytest.mark.parametrize("algo", [PRINTED, EXACT.replace(shift="once"), EXACT.replace(adjacency="zero_out")])
def test_upload_times_show_what_noise_does_not_hide(key, algo):
    """At the same delta, also where noise is exact, which is a control."""
    audit = uploads(algo, name="printed").run(key, n_runs=20_000)
    assert audit.epsilon_lower > (3 if algo == PRINTED else 1.4) * audit.epsilon, audit


@pytest.mark.slow
@pytest.mark.parametrize("leak", [labels, uploads])
def test_certified_runs_have_neither_leak(key, leak):
    audit = leak(HOMO, name="certified").run(key, n_runs=4000)
    assert audit.passed
    assert audit.same_control_flow
    assert audit.epsilon_lower == 0


@fb.pytree
class OneUser(Script):
    """Rounds of user 0 alone."""

    n_clusters: int = fb.static(default=1)

    def observe(self, key, world, t):
        offered, t = super().observe(key, world, t)
        return offered._replace(user=jnp.zeros(1, jnp.int32)), t

    def clusters(self, world):
        return jnp.zeros(self.spec.n_users, jnp.int32)


@pytest.mark.slow
def test_transcripts_are_those_of_a_run(key):
    """One item, one user: rounds are alike, and the runner of arrivals may draw them at once."""
    data, spec = one_item([[1.0, 0.0]] * 3, [1.0] * 3, [0] * 3), spec_of_visits(2, 2)
    env = OneUser(contexts=data[0], answers=data[1], means=data[1], spec=spec)
    algo = HOMO.bind(spec, 3)
    shown, _ = jax.jit(TranscriptOfVisits(algo=algo, spec=spec))(key, data)
    runner = Sequential(env=env, algo=algo, horizon=3)

    def run(key):
        world, state = jax.jit(runner.init)(key)
        return runner.step(key, world, state, jnp.int32(0))[1]

    released, shared, _, _ = algo.view(jax.jit(run)(key))
    np.testing.assert_allclose(shown.released[-1], _flat(released), rtol=1e-6)
    total = shown.released[0].sum(0) + shown.messages.sum(0)  # one group, which is never renewed
    np.testing.assert_allclose(total, _flat(shared).sum(0), rtol=1e-4, atol=1e-4)
    assert shown.uploaded.tolist() == [False, True, True]  # a round is no more than none, in units of one round


def test_sums_are_shown_in_units_of_their_noise():
    flat = _flat(jnp.array([[2.0, 1.0, 3.0], [1.0, 0.0, 4.0]]))
    np.testing.assert_allclose(flat, [2**0.5, 1, 0, 3, 4], rtol=1e-6)


def test_arms_of_other_servers_users_are_shown():
    """By an algorithm that always chooses the longer of two features, and shows no sums."""

    methods = {
        "init": lambda self, key, spec: (jnp.zeros((3, 2, 3)), jnp.zeros(3, jnp.int32)),
        "begin": lambda self, key, t, state: (state, Report()),
        "index": lambda self, key, t, state, user, contexts: contexts[:, 0],
        "serve": lambda self, key, t, state, user, x, y: (state, Report()),
        "view": lambda self, state: (state[0], state[0], state[1], state[1]),
    }

    contexts = np.zeros((4, 1, 2, 2), np.float32)
    contexts[[0, 1, 3], 0, 1, 0] = 0.5  # the second arm, but for the third round
    users = np.array([0, 1, 1, 2])
    longer = type("Longer", (), methods)()
    transcript = TranscriptOfVisits(algo=longer, spec=spec_of_visits(3, 2, n_arms=2))
    _, arms = transcript(jax.random.key(0), (contexts, np.zeros((4, 1, 2), np.float32), users))
    assert arms.tolist() == [0, 1, 0, 0]  # users 0 and 2 are at the server that is trusted with them
