"""Whoever changes what runs, after or before binding, changes what is certified: numbers that only arms have.

Classes and single leaves are changed in `tests/privacy/test_forgeries.py`, also for arms.
"""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, BLOCK, INIT, PRIVATE, STEP, algorithm
from helpers import refused

import fedbandit_jax as fb
from fedbandit_jax.core import wide
from fedbandit_jax.engine.runners import BatchedArms
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.integers import ring
from fedbandit_jax.privacy.integers.noise import LocalNoise, PolyaNoise, ServerNoise, SkellamNoise

HORIZON = 2000  # batches of 2, 4, ..., 256 users


def bound(label="Dist-DP-SE", epsilon=1.0, **options):
    return algorithm(label, epsilon, **options).bind(ARMS.spec, HORIZON if label != "DP-SE" else 20_000)


def changed(of, **fields):
    """With another protocol."""
    return replace(of, protocol=replace(of.protocol, **fields))


def noisier(of, factor):
    """With noise of another width, nothing else being told of it."""
    power = factor * abs(factor) if isinstance(of.protocol.noise, SkellamNoise) else factor
    return changed(of, noise=replace(of.protocol.noise, size=of.protocol.noise.size * np.float32(power)))


@pytest.mark.parametrize("label", PRIVATE)
def test_scaled_noise(label):
    """What is proved is the true epsilon, or nothing is; more noise is certified; twice the steps move twice as far."""
    honest = bound(label)
    found, more = certify(honest), certify(noisier(honest, 2.0))
    assert found.claim == more.claim == "certified"
    assert found.epsilon_exact > more.epsilon_exact
    if found.notion == "pure DP":
        assert found.epsilon_exact <= found.epsilon == 1.0
    for factor in (0.999, 0.5, 0.0, math.nan):
        less = certify(noisier(honest, factor))
        assert less.claim == "none"
        assert less.epsilon_exact is None or less.epsilon_exact > found.epsilon_exact
        if factor == 0.5 and found.notion == "pure DP":
            assert less.epsilon_exact == pytest.approx(1.5 if label == "Shuffle-DP-SE" else 2.0, rel=0.01)
    finer = certify(changed(honest, steps=2 * honest.protocol.steps))
    assert finer.claim == "none"
    assert finer.epsilon_exact > 1.4


def shuffled(epsilon, failure):
    """Another shuffler in place of the one that the noise leaves room for."""
    honest = bound("Shuffle-DP-SE")
    return changed(honest, noise=replace(honest.protocol.noise, bits_epsilon=epsilon, bits_failure=failure))


def on_a_grid(steps, scale):
    return changed(bound("DP-SE"), **vars(ring.on_grid(bound("DP-SE").protocol.users, steps, scale)))


FORGED = {
    "bits that cost more": lambda: shuffled(3.0, 0.1),
    "bits that never fail": lambda: shuffled(0.5, 0.0),
    "bits of negative cost": lambda: shuffled(-0.5, 0.0),
    "steps beyond float32": lambda: changed(bound(), steps=bound().protocol.steps * 2.0**24),
    "no ring": lambda: changed(bound(), modulus=wide.of([1] * len(bound().users))),
    "a ring beyond its words": lambda: changed(bound(), modulus=wide.of([2**62] * len(bound().users))),
    "steps that are no integer": lambda: on_a_grid(4096.5, 4096.0),
    "no steps": lambda: on_a_grid(0.0, 1.0),
    "noise beyond its words": lambda: on_a_grid(1.0, 2.0**26),
}


def test_forged_parts():
    assert {name: certify(forge()).claim for name, forge in FORGED.items()} == dict.fromkeys(FORGED, "none")


def test_trust_is_of_what_runs():
    """Noise that the server adds is not secure aggregation, whatever the recipe was called."""
    size = bound().protocol.noise.size
    trust = [certify(changed(bound(), noise=kind(size=size))).trust for kind in (PolyaNoise, ServerNoise, LocalNoise)]
    assert [sentence.split(":")[0] for sentence in trust] == ["secure aggregation", "central", "local"]


def test_a_narrower_ring_is_told():
    """It costs no privacy, but sums."""
    honest = bound()
    found = certify(changed(honest, largest=wide.of(wide.to_int(honest.protocol.largest) - 8)))
    assert found.claim == "certified"
    assert found.wrap_probability > 2 * certify(honest).wrap_probability


EQUAL = fb.envs.arms(means=[0.5] * 4)  # no arm is dropped


def may_ask(algo):
    """Batches that it would ask, however many arms are left."""
    fresh = algo.init(jax.random.key(0), EQUAL.spec)
    left = [fresh._replace(active=np.arange(4) < n) for n in (2, 3, 4)]
    asked = jax.jit(lambda state, k: algo.pulls(state, k).asked)
    return [k for k in range(algo.n_batches) if any(bool(asked(state, np.int32(k))) for state in left)]


def test_only_calibrated_batches_are_asked():
    """Other or more batches after binding: nothing is learned from what the noise is not for."""
    algo = algorithm("Dist-DP-SE").bind(EQUAL.spec, 58)  # not the 16 that two arms would have next
    assert certify(algo).releases == 3
    assert algo.protocol.users.tolist() == [2, 4, 8] + [0] * 5  # tables are padded
    assert may_ask(algo) == [0, 1, 2]
    assert may_ask(replace(algo, users=np.concatenate([algo.users, algo.users[-1:]]))) == [0, 1, 2]
    for other in (algo.users + 2, algo.users - 1, np.roll(algo.users, 1, 0)):
        assert may_ask(replace(algo, users=other)) == []
    # of DP-SE any number of users up to the most that were to come
    algo = algorithm("DP-SE", 2.0).bind(EQUAL.spec, 5000)
    assert (certify(algo).releases, algo.n_batches) == (1, 3)
    assert may_ask(algo) == [0]
    assert may_ask(replace(algo, users=2 * algo.users)) == []


def test_users_who_return_by_the_environment_s_own_account():
    again = replace(ARMS.spec, n_users=40)
    unit = [algorithm("Dist-DP-SE").certificate(spec, HORIZON).unit for spec in (ARMS.spec, again)]
    assert [one[:15] for one in unit] == ["one user with o", "one interaction"]
    with refused("algo"):
        fb.simulate(replace(ARMS, spec=again), bound(), horizon=100, key=jax.random.key(0), seeds=1)


@fb.pytree
class Odd:
    """Rewards of one arm that are not those of the spec."""

    value: float
    spec: fb.Spec = fb.static(default=ARMS.spec)

    def init(self, key):
        return ()

    def means(self, world):
        return jnp.array([0.1, 0.95, 0.45, 0.7])

    def answers(self, key, world, arm, size):
        rewards = jnp.full(size, jnp.where(arm == 3, self.value, self.means(world)[arm]))
        return rewards[: size // 2], rewards[size // 2 :]


def test_rewards_against_the_spec_are_flagged(key):
    """And clipped, NaN to 0: the certificate stands, but the seed must not be trusted."""

    def run(value):
        """What was told after every batch, and whether the spec was broken."""
        runner = BatchedArms(env=Odd(value=np.float32(value)), algo=bound(), horizon=HORIZON, block=BLOCK)
        (world, state), told, status = INIT(runner, key), [], 0
        for k in range(runner.n_steps):
            world, state, metrics = STEP(runner, key, world, state, np.int32(k))
            status |= int(metrics.report.status)
            told.append((state, metrics._replace(report=metrics.report._replace(status=0))))
        return told, status

    for value in (math.nan, math.inf, -0.01, 1.01):
        (found, status), (clipped, fine) = run(value), run(np.clip(np.nan_to_num(value, nan=0), 0, 1))
        assert (status, fine) == (fb.Status.OUTSIDE_SPEC, fb.Status.OK)
        jax.tree.map(np.testing.assert_array_equal, found, clipped)
