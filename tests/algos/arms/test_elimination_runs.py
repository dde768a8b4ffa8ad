"""Runs of successive elimination: programs that are shared, parameters that count, extremes, refusals."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, PRIVATE, algorithm
from helpers import deep

import fedbandit_jax as fb
from fedbandit_jax.algos.arms import radius as radii
from fedbandit_jax.algos.arms.loop import EliminationState
from fedbandit_jax.engine import driver
from fedbandit_jax.privacy.accounting.lattice import DiscreteLaplace, Skellam
from fedbandit_jax.privacy.integers.ring import Decoded


def test_other_numbers_of_batches_share_a_program(monkeypatch):
    """Batches that grow faster are fewer; beside them, others still play all of theirs."""
    algos = [algorithm("Dist-DP-SE", 0.2, growth=growth, name=f"growth {growth}") for growth in (3, 2)]
    started, compiled = [], driver._compiled
    monkeypatch.setattr(driver, "_compiled", lambda *about: started.append(about) or compiled(*about))
    options = dict(horizon=30_000, key=jax.random.key(0), seeds=2)
    together = fb.sweep(ARMS, algos, **options)
    assert len(started) == 1
    assert [one.bind(ARMS.spec, 30_000).n_batches for one in algos] == [10, 14]
    np.testing.assert_array_equal(together.regret[1], fb.simulate(ARMS, algos[1], **options).regret)


@pytest.mark.parametrize("name", deep(PRIVATE, keep={0}))
def test_extremes_fit(name):
    """As many users as there may be, in few batches or many, and little or much privacy: all tables are finite."""
    most, ring = 2**31 - 1 - 2**16, name != "DP-SE"
    settings = [(most, 0.1, dict(growth=g, radius="exact")) for g in (4, 1024)] if ring else []
    for horizon, epsilon, options in [*settings, (most, 0.1, {}), (10**4, 500.0, {}), (10**6, 1e-6, {})]:
        algo, spec = algorithm(name, epsilon, **options), fb.envs.arms().spec
        bound, certificate = (f(spec, horizon) for f in (algo.bind, algo.certificate))
        assert np.isfinite(bound.radius[:, 1:]).all()
        assert bound.users.min() > 0
        assert certificate.claim == ("none" if epsilon == 500 else "certified")
        assert ("far tails" in certificate.reason) == (epsilon == 500)


def test_parameters_reach_what_runs():
    """By hand: batches of 3, 9, ..., users, scale * epsilon * sqrt(n) steps, radii that pay for wrapped sums."""
    spec, p = ARMS.spec, 0.2
    skellam = algorithm("Dist-RDP-SE", 0.5, growth=3, scale=7.0).bind(spec, 5000)
    sizes = 3 ** np.arange(1, 8)
    np.testing.assert_array_equal(skellam.users[:7, 2], sizes)
    np.testing.assert_array_equal(skellam.protocol.steps[:5], np.ceil(3.5 * np.sqrt(sizes[:5])))
    for name, law_of in (("Dist-DP-SE", DiscreteLaplace), ("Dist-RDP-SE", lambda width: Skellam(width**2))):
        bound = algorithm(name, 0.5, radius="exact", failure=p).bind(spec, 5000)
        users = [int(n) for n in bound.users[: bound.n_batches, 2]]
        steps = [math.ceil({"Dist-DP-SE": 1, "Dist-RDP-SE": 10}[name] * 0.5 * math.sqrt(n)) for n in users]
        laws = [law_of(g / 0.5) for g in steps]  # a sum wraps with probability p / 100, all together
        right = radii.exact(users, laws, steps, n_arms=4, p=p * (1 - 1 / 300))
        np.testing.assert_allclose(bound.radius[: bound.n_batches], right, rtol=1e-6)


def test_an_arm_that_was_dropped_has_no_say():
    """A sum of noise alone, however large, brings no arm back, and is no best that others must reach."""

    class Told:
        bits = np.zeros(20)

        def decode(self, key, k, sums):
            return Decoded(sums, np.zeros(4, bool))

    bound = algorithm("SE").bind(ARMS.spec, 9001)
    bound = dataclasses.replace(bound, protocol=Told(), radius=np.full_like(bound.radius, 0.1))
    users = int(bound.users[5, 3])
    sums = users * np.array([0.5, 0.9, 20.0, 0.85], np.float32)
    state = EliminationState(jnp.array([True, True, False, True]), jnp.zeros(4))
    new, report = jax.jit(bound.conclude)(jax.random.key(0), 5, state, sums)
    np.testing.assert_array_equal(new.active, [False, True, False, True])
    np.testing.assert_allclose(new.shown, users * np.array([0.5, 0.9, 0, 0.85]), rtol=1e-6)
    assert int(report.counts["eliminations"]) == 1
