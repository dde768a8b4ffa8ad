"""The noise of every integer mechanism, of a whole sum and of its users' shares: of its law, fresh, not a fifth off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedbandit_jax.core import wide
from fedbandit_jax.privacy.integers.mechanisms import MECHANISMS
from fedbandit_jax.privacy.integers.shares import SkellamNoise

USERS, RUNS, ALPHA = (4, 16), 2000, 1e-4


@jax.jit
def drawn(noise, key, k, n):
    """Noise of sums with two keys (2, RUNS), and shares of users (RUNS, 16)."""
    first, second, third = jax.random.split(key, 3)
    sums = jax.lax.map(lambda one: wide.to_float(noise.total(one, k, n, (RUNS,))), jnp.stack([first, second]))
    return sums, noise.share(third, k, n, (RUNS, USERS[1]))


def p_value(draws, law):
    """Of a chi-square test in some ten cells, whose probabilities are those of the exact law."""
    edge = int(20 * law.variance**0.5) + 1
    pmf = np.exp(law.log_pmf(np.arange(-edge, edge + 1)))
    _, cell = np.unique((10 * (pmf.cumsum() - pmf / 2)).astype(int), return_inverse=True)
    found = np.bincount(cell[draws.clip(-edge, edge).astype(int) + edge], minlength=cell.max() + 1)
    return stats.chisquare(found, len(draws) * np.bincount(cell, pmf / pmf.sum())).pvalue


def correlation(a, b):
    return abs(np.corrcoef(a, b)[0, 1]) * len(a) ** 0.5  # in standard errors


@pytest.mark.parametrize("pair", MECHANISMS, ids=" ".join)
def test_noise_is_of_its_law_fresh_and_not_a_fifth_off(key, pair):
    """Of both batches: whole sums, and shares that add up to one, have the law that is proved.

    A scale 20 % larger or smaller is refuted. Draws of two keys, sums and users are not alike.
    """
    noise = MECHANISMS[pair](1.0, 4.0, 1e-3, 10**5).sums(USERS).noise
    ((name, table),), power = vars(noise).items(), 2 if isinstance(noise, SkellamNoise) else 1  # which has a variance
    others = [type(noise)(**{name: np.float32(table * factor**power)}) for factor in (0.8, 1.2)]
    for k, n in enumerate(USERS):
        sums, shares = (np.asarray(x, float) for x in drawn(noise, key, jnp.int32(k), jnp.int32(n)))
        one, two = sums
        kinds = [one, two] if noise.at_server else [one, two, shares[:, :n].sum(1)]
        assert all(p_value(x, noise.law(k, n)) > ALPHA for x in kinds)
        assert not any(p_value(x, other.law(k, n)) > ALPHA for x in kinds for other in others)
        assert correlation(one, two) < 5
        assert correlation(one[::2], one[1::2]) < 5
        assert noise.at_server or correlation(shares[:, 0], shares[:, 1]) < 5
