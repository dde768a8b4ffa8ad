"""Successive elimination: numbers that count, what only arms can forge, and users who return.

Single leaves and classes are changed in tests/privacy/test_forgeries.py, also for arms.
"""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, INIT, PRIVATE, STEP, algorithm
from helpers import deep, refused

import fedbandit_jax as fb
from fedbandit_jax.algos.arms import radius as radii
from fedbandit_jax.core import wide
from fedbandit_jax.engine import driver
from fedbandit_jax.engine.runners import BatchedArms
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.accounting.lattice import DiscreteLaplace, Skellam
from fedbandit_jax.privacy.integers import ring
from fedbandit_jax.privacy.integers.noise import LocalNoise, PolyaNoise, ServerNoise, SkellamNoise

HORIZON = 2000  # batches of 2, 4, ..., 256 users


def test_other_numbers_of_batches_share_a_program(monkeypatch):
    """Batches that grow faster are fewer; beside them, others still play all of theirs, or a curve would be refused."""
    algos = [algorithm("Dist-DP-SE", 0.2, growth=growth, name=f"growth {growth}") for growth in (3, 2)]
    started, compiled = [], driver._compiled
    monkeypatch.setattr(driver, "_compiled", lambda *about: started.append(about) or compiled(*about))
    fb.sweep(ARMS, algos, horizon=30_000, key=jax.random.key(0), seeds=2)
    assert len(started) == 1
    assert [one.bind(ARMS.spec, 30_000).n_batches for one in algos] == [10, 14]


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
    """One reward for every user of an arm."""

    rewards: np.ndarray
    spec: fb.Spec = fb.static(default=ARMS.spec)

    def init(self, key):
        return ()

    def means(self, world):
        return jnp.array([0.1, 0.95, 0.45, 0.7])

    def answers(self, key, world, arm, size):
        return (jnp.full(size // 2, jnp.asarray(self.rewards)[arm]),) * 2


def test_rewards_against_the_spec_are_flagged(key):
    """And clipped, NaN to 0: the certificate stands, but the seed must not be trusted."""

    def step(*rewards):
        runner = BatchedArms(env=Odd(rewards=np.float32(rewards)), algo=bound(), horizon=HORIZON, block=64)
        _, state, metrics = STEP(runner, key, *INIT(runner, key), jnp.int32(7))  # 256 users of an arm
        return state, metrics

    (state, told), (clipped, fine) = step(math.nan, math.inf, -0.01, 1.01), step(0, 1, 0, 1)
    assert (told.report.status, fine.report.status) == (fb.Status.OUTSIDE_SPEC, fb.Status.OK)
    jax.tree.map(np.testing.assert_array_equal, (state, told.gap), (clipped, fine.gap))
    for value in (math.nan, math.inf, -0.01, 1.01):
        assert step(0.5, 0.5, value, 0.5)[1].report.status == fb.Status.OUTSIDE_SPEC


# Users who return: test_user_by_user.py has what enters.

USERS, THREE = fb.privacy.Users, fb.envs.arms(n_arms=3, rewards="bernoulli")
SPEC = replace(THREE.spec, n_users=7)


@pytest.mark.parametrize(("kind", "share"), [(fb.algos.DistDPSE, 1 / 16), (fb.algos.DistRDPSE, 1 / 4)])
def test_the_budget_is_for_all_sums_of_one_user(kind, share):
    """Noise is that of a share of epsilon, and the certificate composes r = 16 sums of it."""
    algo, one = kind(2.0, unit=USERS(16, 1)), kind(2.0 * share)
    bound = algo.bind(SPEC, 5000)
    np.testing.assert_array_equal(bound.protocol.stds(), one.bind(SPEC, 5000).protocol.stds())
    found, single = algo.certificate(SPEC, 5000), one.certificate(SPEC, 5000)
    assert found.claim == "certified"
    assert "up to 16 times at a silo, 1 in a batch" in found.unit
    assert algo.certificate(THREE.spec, 5000).unit.endswith("this is a promise, because users are not identified")
    assert (found.epsilon, found.releases_per_user, found.visits) == (2.0, 16.0, ())
    assert found.renyi == tuple((alpha, pytest.approx(16 * value)) for alpha, value in single.renyi)
    if kind is fb.algos.DistDPSE:
        assert found.epsilon_exact == pytest.approx(16 * single.epsilon_exact)
        assert 1.9 < found.epsilon_exact <= 2.0
    else:
        assert single.epsilon_exact < found.epsilon_exact < 16 * single.epsilon_exact
        once = kind(2.0).certificate(SPEC, 5000)  # Renyi DP of all is that of one
        assert found.epsilon_exact == pytest.approx(once.epsilon_exact, rel=0.1)
    anywhere = kind(2.0, unit=USERS(16, 1, silos="together")).certificate(SPEC, 5000)
    assert replace(anywhere, unit=found.unit) == found  # one table has all users in any case
    assert "up to 16 times at all silos together" in anywhere.unit
    for unit in (USERS(17, 1), USERS(16, per_batch=2), USERS(16, per_batch=1, silos=5)):
        assert certify(replace(bound, unit=unit)).claim == "none"


def test_who_is_kept():
    """An arm without rewards may be anything; and the noise of a dropped arm is no best that others must reach."""
    bound = fb.algos.DistDPSE(400.0, unit=USERS(2, 1)).bind(SPEC, 95)
    bound = replace(bound, radius=np.full_like(bound.radius, 0.1))
    sums = jax.tree.map(jnp.asarray, wide.of([n * int(bound.protocol.steps[2]) for n in (0, 4, 8)]))  # of 8 users
    after, _ = jax.jit(bound.conclude)(jax.random.key(0), 2, bound.init(None, SPEC), sums, jnp.array([0, 8, 8]))
    assert after.active.tolist() == [True, False, True]
    assert bound.kept(None, np.array([True, True, False]), np.array([0, 0.75, 1]), 0.1).tolist() == [False, True, False]
