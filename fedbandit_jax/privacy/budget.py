"""The privacy asked for, and how far one user can move the released statistics."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.accounting import EPSILON_RANGE

# sup ||d bias||_2^2 + ||d covariance||_F^2 over one user's change, with ||x|| <= 1, y in [0, 1] and the same noise
# std on every entry of bias and covariance (spec: joint sensitivity; attained at <x, x'> = -1/2, y = y' = 1).
JOINT_SENSITIVITY_SQ = MappingProxyType({"replace": 4.5, "add_remove": 2.0})
# The same for the joint matrix [x y]'[x y] without its last entry y^2, in units of the noise on (N + N') / sqrt 2, N
# iid: ||d bias||^2 + ||d covariance||_F^2 / 2 (attained at x' = -x, y = y' = 1).
MATRIX_SENSITIVITY_SQ = MappingProxyType({"replace": 4.0, "add_remove": 1.5})
MAX_NORM = 1 + 1e-6  # what float32 makes of unit vectors; the noise that runs is inflated to match
ADJACENCY = {
    "replace": "one user's context and rewards replaced by any others",
    "add_remove": "one user's contribution replaced by zero",
}


@dataclasses.dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) differential privacy budget under a named adjacency.

    Args:
        epsilon: in [1e-9, 1e6].
        delta: in (0, 1).
        adjacency: "replace" (default) changes one user's context and rewards arbitrarily; "add_remove" replaces the
            user's contribution by zero: two thirds of the distance, so two thirds of the noise for the same epsilon.

    Raises:
        ValueError, TypeError: naming the argument and its value.

    Example:
        >>> Budget(epsilon=1.0, delta=0.1)
        Budget(epsilon=1.0, delta=0.1, adjacency='replace')
        >>> Budget(epsilon=-1.0, delta=0.1)
        Traceback (most recent call last):
        ValueError: epsilon must be finite and > 0, got -1.0
    """

    epsilon: float
    delta: float
    adjacency: str = "replace"

    def __post_init__(self):
        validate.within("epsilon", validate.positive("epsilon", self.epsilon), *EPSILON_RANGE)
        validate.probability("delta", self.delta)
        validate.one_of("adjacency", self.adjacency, ADJACENCY)

    @property
    def joint_sensitivity_sq(self) -> float:
        """Squared joint l2 sensitivity of one user's (x y, x x'), equal noise on both."""
        return JOINT_SENSITIVITY_SQ[self.adjacency]

    @property
    def matrix_sensitivity_sq(self) -> float:
        """The same for symmetric noise on the joint matrix: sigma on bias and off the diagonal, sqrt 2 sigma on it."""
        return MATRIX_SENSITIVITY_SQ[self.adjacency]
