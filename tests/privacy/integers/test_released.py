"""The noise and the constants of the authors' code, against a NumPy version of what that code computes."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, INIT, STEP, algorithm, lemma_2

import fedbandit_jax as fb
from fedbandit_jax.core import wide
from fedbandit_jax.engine.clocks import ArmBatchClock
from fedbandit_jax.privacy.integers.mechanisms import ReleasedPolya, ReleasedSkellam
from fedbandit_jax.privacy.integers.protocol import SharedNoiseSum

HORIZON = 9001


def polya(rng, r, p, size):
    """Their `polya`: the scale of the Gamma variable is (1 - p) / p."""
    return rng.poisson(rng.gamma(r, (1 - p) / p, size))


def test_released_polya_by_hand():
    noise = ReleasedPolya(0.5, 10.0, 0.1, 10**6).noise([64])  # g = 4, so that p = e^(-1/8) = 0.8825
    assert noise.width(0) == pytest.approx(-1 / math.log(1 - 0.8824969), rel=1e-6)
    proof = ReleasedPolya(0.5, 10.0, 0.1, 10**6).sums([64]).proof(0)
    assert proof.pure == pytest.approx(4 * 2.14130, rel=1e-4)


def test_released_polya_is_that_of_the_code():
    """Frequencies of 0 and of +-1, ..., +-3 among 20,000 sums of n users' shares, to 4 standard errors."""
    epsilon, n, runs = 0.5, 16, 20_000
    g = math.ceil(epsilon * math.sqrt(n))
    rng, shares = np.random.default_rng(0), (runs, n)
    theirs = (
        polya(rng, 1 / n, math.exp(-epsilon / g), shares) - polya(rng, 1 / n, math.exp(-epsilon / g), shares)
    ).sum(1)
    noise = ReleasedPolya(epsilon, 10.0, 0.1, 10**6).noise([n])
    values = np.arange(-3, 4)
    pmf = np.exp(noise.law(0, n).log_pmf(values))
    ours = jax.jit(lambda key: noise.total(key, jnp.int32(0), jnp.int32(n), (runs,)))(jax.random.key(0))
    for drawn in (theirs, wide.to_int(ours)):
        found = (drawn == values[:, None]).mean(1)
        np.testing.assert_array_less(np.abs(found - pmf), 4 * np.sqrt(pmf * (1 - pmf) / runs))
    assert abs(noise.law(0, n).variance - theirs.var()) < 0.05 * theirs.var()


def test_released_skellam_by_hand():
    mechanism = ReleasedSkellam(0.5, 10.0, 0.1, 10**6)
    assert mechanism.steps(64) == 40
    assert mechanism.slack(64) == math.ceil((160 + math.sqrt(2)) * math.log(20)) == 484
    s, h = mechanism.tail_constants(np.array([64.0]))
    assert (s, h) == pytest.approx(((2 + math.sqrt(2) / 10) / 0.5, 0.2))


@pytest.mark.parametrize("name", ["Dist-DP-SE", "Dist-RDP-SE"])
def test_what_runs_is_what_the_code_has(name):
    """Batches of 4^b, a ring for p and not for a part of it, the radii of the code."""
    bound = algorithm(name, 0.5, growth=4, calibration="authors").bind(ARMS.spec, HORIZON)
    mechanism = {"Dist-DP-SE": ReleasedPolya, "Dist-RDP-SE": ReleasedSkellam}[name](0.5, 10.0, 0.1, HORIZON)
    h = {"Dist-DP-SE": 2.0, "Dist-RDP-SE": 0.2}[name]
    s = {"Dist-DP-SE": math.sqrt(2) / 0.5, "Dist-RDP-SE": (2 + math.sqrt(2) / 10) / 0.5}[name]
    for k, n in enumerate((4, 16, 64, 256)):
        assert bound.users[k, 4] == n
        assert wide.to_int(bound.protocol.modulus)[k] == mechanism.modulus(n)
        assert bound.protocol.noise.width(k) == mechanism.noise([n]).width(0)
        assert bound.radius[k, 3] == pytest.approx(lemma_2(k + 1, n, 3, s, h), rel=1e-6)


def test_the_certificate_says_what_the_noise_gives():
    certificates = {
        name: algorithm(name, 0.1, growth=None if name == "DP-SE" else 4, calibration="authors").certificate(
            ARMS.spec, HORIZON
        )
        for name in ("DP-SE", "Dist-DP-SE", "Dist-RDP-SE")
    }
    assert [found.claim for found in certificates.values()] == ["none", "none", "certified"]
    assert certificates["DP-SE"].epsilon_exact == math.inf
    g, n = math.ceil(0.1 * 32), 1024  # the largest batch that two arms can have
    given = certificates["Dist-DP-SE"].epsilon_exact
    assert given == pytest.approx(-g * math.log(-math.expm1(-0.1 / g)), rel=1e-5)
    assert given > 0.1 * math.sqrt(n) * math.log(n) / 2 > 100 * 0.1


def test_all_arms_have_the_same_noise():
    """Sums of arms differ as they do without noise, in DP-SE; and so do the arms that are left."""
    process = ArmBatchClock(
        env=ARMS, algo=algorithm("DP-SE", 2.0, calibration="authors").bind(ARMS.spec, HORIZON), horizon=HORIZON
    )
    protocol = process.algo.protocol
    assert type(protocol) is SharedNoiseSum
    quiet = replace(process.algo, protocol=replace(protocol, scale=0.0))
    plain = ArmBatchClock(env=ARMS, algo=quiet, horizon=HORIZON)
    shown = []
    for one in (process, plain):
        world, state = INIT(one, jax.random.key(3))
        world, state, _ = STEP(one, jax.random.key(3), world, state, jnp.int32(0))
        shown.append(np.asarray(state[1].shown))
    np.testing.assert_allclose(np.ptp(shown[0] - shown[1]), 0, atol=2e-3)
    assert np.abs(shown[0] - shown[1]).min() > 0.01


def test_refusals():
    for name in ("LDP-SE", "CDP-SE", "Dist-CDP-SE", "Shuffle-DP-SE", "SE"):
        with pytest.raises(
            ValueError, match=r"calibration must be 'theorem' unless it is DP-SE, Dist-DP-SE or Dist-RDP"
        ):
            algorithm(name, calibration="authors")
    with pytest.raises(ValueError, match="radius must be 'theory' with calibration='authors', got 'exact'"):
        algorithm("Dist-DP-SE", calibration="authors", radius="exact")
    assert "calibration" not in fb.algos.SuccessiveElimination().parameters()
    assert "radius" not in algorithm("Dist-DP-SE", calibration="authors").parameters()
