"""What is seen of clusters of users: covered by noise if certified, else glaring."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.audits.clusters import TranscriptOfVisits, _flat, labels, one_item, spec_of_visits, uploads
from fedbandit_jax.engine.runners import Sequential
from fedbandit_jax.envs import Script

BUDGET = fb.privacy.Budget(1.0, 0.1)
HOMO = fb.algos.homo_dc(BUDGET, trigger="count")


PRINTED, EXACT = fb.algos.FCLUB(BUDGET, calibration="theorem"), fb.algos.FCLUB(BUDGET)
LEAKS = [  # what is shown of an algorithm, runs, and the least epsilon: every run may differ, and noise may be exact
    *((labels, PRINTED.replace(**by), 1000, 4.0)  # at 99.9 % 500 runs can show 4.2
      for by in ({}, dict(alpha_1=3.0), dict(alpha_1=0.05, adjacency="zero_out"))),
    (uploads, PRINTED, 20_000, 3.0),
    *((uploads, EXACT.replace(**by), 20_000, 1.4) for by in (dict(shift="once"), dict(adjacency="zero_out"))),
    (labels, HOMO, 4000, 0.0),
    (uploads, HOMO, 4000, 0.0),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("leak", "algo", "runs", "least"), LEAKS)
def test_what_noise_does_not_hide(key, leak, algo, runs, least):
    """Local clusters, and when they upload, as printed; certified runs show neither."""
    audit = leak(algo, name="it").run(key, n_runs=runs)
    if algo == HOMO:
        assert (audit.passed, audit.same_control_flow, audit.epsilon_lower) == (True, True, 0)
    else:
        assert audit.epsilon_lower > least * (audit.epsilon if leak is uploads else 1), audit
        assert leak is uploads or not audit.same_control_flow


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
