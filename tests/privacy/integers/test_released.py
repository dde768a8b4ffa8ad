"""The noise and the constants of the authors' code, against a NumPy version of what that code computes."""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, INIT, STEP, lemma_2
from helpers import p_value

from fedbandit_jax.core import wide
from fedbandit_jax.engine.runners import BatchedArms
from fedbandit_jax.privacy.integers.noise import Asked, PolyaNoise
from fedbandit_jax.privacy.integers.ring import RingSum

AUTHORS = runpy.run_path(str(Path(__file__).parents[3] / "experiments" / "authors_arms.py"))
ReleasedPolya, ReleasedSkellam, RELEASED = (AUTHORS[name] for name in ("ReleasedPolya", "ReleasedSkellam", "RELEASED"))
ALPHA = 1e-4
HORIZON, ROOT = 9001, math.sqrt(2)


def test_constants_by_hand():
    """At n = 64, where g = 4 or 40; e^(-1/8) = 0.8825, and ln 20 = 2.9957."""
    asked = Asked(0.5, 10.0, 0.1, 10**6)
    assert ReleasedPolya.made(asked, [64]).width(0) == pytest.approx(-1 / math.log(1 - 0.8824969), rel=1e-6)
    assert RingSum.of(ReleasedPolya, asked, [64]).proof(0).pure == pytest.approx(4 * 2.14130, rel=1e-4)
    skellam = ReleasedSkellam.parameters(asked, 64)
    assert (skellam.steps, skellam.slack) == (40, 484)  # (160 + sqrt 2) ln 20
    assert (skellam.s, skellam.h) == pytest.approx(((2 + ROOT / 10) / 0.5, 0.2))


def test_released_polya_is_that_of_the_code():
    """The code's Gamma variables have the scale (1 - p) / p; 16 users' shares of both have one law, not Theorem 1's."""
    epsilon, n, runs = 0.5, 16, 20_000
    g, rng = math.ceil(epsilon * math.sqrt(n)), np.random.default_rng(0)
    p = math.exp(-epsilon / g)
    theirs = np.subtract(*(rng.poisson(rng.gamma(1 / n, (1 - p) / p, (runs, n))).sum(1) for _ in range(2)))
    noise, right = (kind.made(Asked(epsilon, 10.0, 0.1, 10**6), [n]) for kind in (ReleasedPolya, PolyaNoise))
    total = jax.jit(lambda key: noise.total(key, jnp.int32(0), jnp.int32(n), (runs,)))(jax.random.key(0))
    for drawn in (theirs, wide.to_int(total)):
        assert p_value(drawn, noise.law(0, n)) > ALPHA
        assert p_value(drawn, right.law(0, n)) < ALPHA


@pytest.mark.parametrize(
    ("name", "kind", "s", "h"),
    [("Dist-DP-SE", ReleasedPolya, ROOT / 0.5, 2.0), ("Dist-RDP-SE", ReleasedSkellam, (2 + ROOT / 10) / 0.5, 0.2)],
)
def test_what_runs_is_what_the_code_has(name, kind, s, h):
    """Batches of 4^b, a ring for p and not for a part of it, the radii of the code."""
    bound = RELEASED[name](0.5, growth=4).bind(ARMS.spec, HORIZON)
    asked = Asked(0.5, 10.0, 0.1, HORIZON)
    for k, n in enumerate((4, 16, 64, 256)):
        assert bound.users[k, 4] == n
        assert wide.to_int(bound.protocol.modulus)[k] == kind.parameters(asked, n).modulus
        assert bound.protocol.noise.width(k) == kind.made(asked, [n]).width(0)
        assert bound.radius[k, 3] == pytest.approx(lemma_2(k + 1, n, 3, s, h), rel=1e-6)


def test_the_certificate_says_what_the_noise_gives():
    growth = {"DP-SE": {}, "Dist-DP-SE": {"growth": 4}, "Dist-RDP-SE": {"growth": 4}}
    dp, polya, skellam = (RELEASED[name](0.1, **of).certificate(ARMS.spec, HORIZON) for name, of in growth.items())
    assert (dp.claim, polya.claim, skellam.claim) == ("none", "none", "certified")
    g, n = math.ceil(0.1 * 32), 1024  # the largest batch that two arms can have
    assert polya.epsilon_exact == pytest.approx(-g * math.log(-math.expm1(-0.1 / g)), rel=1e-5)
    assert polya.epsilon_exact > 0.1 * math.sqrt(n) * math.log(n) / 2 > 100 * 0.1


def test_all_arms_have_the_same_noise():
    """Sums of arms differ as they do without noise, in DP-SE; and so do the arms that are left."""
    noisy = RELEASED["DP-SE"](2.0).bind(ARMS.spec, HORIZON)
    assert type(noisy.protocol.noise).__name__ == "SharedNoise"
    silent, shown = jax.tree.map(np.zeros_like, noisy.protocol.noise), []
    for algo in (noisy, replace(noisy, protocol=replace(noisy.protocol, noise=silent))):
        runner = BatchedArms(env=ARMS, algo=algo, horizon=HORIZON)
        world, state = INIT(runner, jax.random.key(3))
        _, state, _ = STEP(runner, jax.random.key(3), world, state, jnp.int32(0))
        shown.append(np.asarray(state[1].shown))
    np.testing.assert_allclose(np.ptp(shown[0] - shown[1]), 0, atol=2e-3)
    assert np.abs(shown[0] - shown[1]).min() > 0.01
