"""The noise of every integer mechanism, of a whole sum and of its users' shares: there, fresh, and not 20 % off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.core import wide
from fedbandit_jax.privacy.integers.mechanisms import MECHANISMS

USERS, RUNS = (4, 16), 4000


@jax.jit
def drawn(noise, key, k, n):
    """Noise of sums with two keys (2, RUNS), and shares of users (RUNS, 16)."""
    first, second, third = jax.random.split(key, 3)
    sums = jax.lax.map(lambda one: wide.to_float(noise.total(one, k, n, (RUNS,))), jnp.stack([first, second]))
    return sums, noise.share(third, k, n, (RUNS, USERS[1]))


def has_variance(draws, variance):
    """Within 5 standard errors, which the draws' own fourth moment gives."""
    squares = draws**2
    return abs(squares.mean() - variance) < 5 * squares.std() / len(draws) ** 0.5


def correlation(a, b):
    return abs(np.corrcoef(a, b)[0, 1]) * len(a) ** 0.5  # in standard errors


@pytest.mark.parametrize("pair", MECHANISMS, ids=" ".join)
def test_noise_is_there_fresh_and_not_a_fifth_off(key, pair):
    """Of both batches: the variance is that of the law that is proved, by a whole sum and by shares that add up to it.

    A scale 20 % larger or smaller is refuted. Draws of two keys, sums and users are not alike.
    """
    noise = MECHANISMS[pair](1.0, 4.0, 1e-3, 10**5).sums(USERS).noise
    for k, n in enumerate(USERS):
        variance = noise.law(k, n).variance
        sums, shares = (np.asarray(x, float) for x in drawn(noise, key, jnp.int32(k), jnp.int32(n)))
        one, two = sums
        kinds = [one, two] if noise.at_server else [one, two, shares[:, :n].sum(1)]
        assert all(has_variance(x, variance) for x in kinds)
        assert not any(has_variance(x, factor**2 * variance) for x in kinds for factor in (0.8, 1.2))
        assert correlation(one, two) < 5
        assert correlation(one[::2], one[1::2]) < 5
        assert noise.at_server or correlation(shares[:, 0], shares[:, 1]) < 5
