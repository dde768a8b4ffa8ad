"""What is the package's own, and what is not."""

import dataclasses

from helpers import Bias

import fedbandit_jax as fb
from fedbandit_jax.core import struct


def test_one_foreign_part_is_enough():
    ours = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=5)
    for within in (tuple, list, lambda parts: dict(enumerate(parts))):
        assert struct.shipped(within([1, "a", ours, fb.algos.UCB()]))
        for foreign in (Bias(), Bias, lambda: 0, dataclasses.replace(ours, policy=Bias())):
            assert not struct.shipped(within([1, foreign, ours]))
