"""Thompson sampling by noisy sums: first phases outweigh the noise."""

import pytest
from four_arms import ARMS
from helpers import refused

import fedbandit_jax as fb

A = fb.algos


@pytest.mark.parametrize(
    ("sums", "first"), [(A.SE(), 100), (A.CDPSE(0.1), 600), (A.LDPSE(1.0), 3600), (A.CDPSE(1e-6), 12_500)]
)
def test_first_users_outweigh_the_noise(sums, first):
    """The standard deviation of a first noisy mean is root 2 / 60, unless half of the horizon would not do."""
    bound = A.PhasedThompson(sums).bind(ARMS.spec, 100_000)
    assert bound.users[0] == first
    std = bound.protocol.stds()[0] / first
    assert std <= 2**0.5 / 60 * 1.01 or first == 12_500


def test_refusals():
    for wrong in (0, -1, 1.5):
        with refused("first", wrong):
            A.PhasedThompson(first=wrong)
    with refused("first", 100):
        A.PhasedThompson(first=100).bind(ARMS.spec, 399)
