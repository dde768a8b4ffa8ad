"""A range of responses that is not around 0 is charged by its farther end."""

import dataclasses

import numpy as np
import pytest
from helpers import PRIVATE

import fedbandit_jax as fb


@dataclasses.dataclass(frozen=True)
class Shifted(fb.privacy.Statistic):
    """Responses in [a, b], the ends for rewards 0 and 1."""

    a: float = -1.0
    b: float = 1.0

    @property
    def responses(self):
        return self.a, self.b

    def contribution(self, x, y, seen):
        return 1.0, self.a + (self.b - self.a) * y


@pytest.mark.parametrize(("a", "b"), [(-1.0, 0.2), (-0.2, 1.0), (-0.6, -0.5)])
def test_no_pair_of_users_is_farther_apart_than_is_charged(a, b):
    spec = fb.Spec(n_agents=1, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True)
    bound = PRIVATE.replace(statistic=Shifted(a=a, b=b)).bind(spec, 50)
    mechanism, angles = bound.mechanism, np.linspace(0, np.pi, 25)
    x = np.repeat([np.cos(angles), np.sin(angles)], 2, 1).astype(np.float32)
    y = np.tile(np.float32([0, 1]), len(angles))
    users, (_, v), *_ = mechanism.admit(x, y)  # all weights are 1
    packed = mechanism.statistic.pack(np.einsum("im,jm->mij", users, np.concatenate([users, v[None]])))
    moves = (
        np.linalg.norm(np.subtract(packed[:, None], packed[None]), axis=-1).max()
        * mechanism.release.sensitivity_sq() ** 0.5
    )
    assert moves <= mechanism.sensitivity * (1 + 1e-5)
    assert moves > 0.5 * mechanism.sensitivity
