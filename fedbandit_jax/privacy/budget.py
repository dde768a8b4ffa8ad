"""The privacy that is asked for, and how far one user can move the released statistics.

One user with features x, ||x|| <= 1, and reward y in [0, 1] contributes x y to the bias and x x' to the covariance.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.accounting import EPSILON_RANGE

# Squared joint sensitivity: the supremum of ||change of bias||_2^2 + ||change of covariance||_F^2 when one user (x, y)
# becomes (x', y') or contributes zero (replacement attains it at <x, x'> = -1/2, y = y' = 1). It is for equal noise on
# every entry of the packed statistic (see `fedbandit_jax.privacy.statistic`), whose Euclidean norm is this one.
JOINT_SENSITIVITY_SQ = MappingProxyType({"replace": 4.5, "add_remove": 2.0})
# The same for symmetric noise (N + N') / sqrt 2, N iid, on the joint matrix [x y]'[x y] without its last entry y^2: the
# supremum of ||change of bias||_2^2 + ||change of covariance||_F^2 / 2 (replacement: at x' = -x, y = y' = 1).
MATRIX_SENSITIVITY_SQ = MappingProxyType({"replace": 4.0, "add_remove": 1.5})
MAX_NORM = 1 + 1e-6  # largest norm that a unit vector may have in float32; the noise that is drawn is inflated to match
ADJACENCY = {
    "replace": "one user's context and rewards replaced by any others",
    "add_remove": "one user's contribution replaced by zero",  # the number of users is public
}


def sensitivity_sq(adjacency: str, centred: bool = False, gram_scale: float = 1.0) -> float:
    """Computes the supremum of ||change of U||_2^2 + s^2 ||change of W||_F^2, s = `gram_scale`, that one user makes.

    She has ||x|| <= 1 and y in [0, 1], adds (x x', x c) with c = y, or c = y - 1/2 if `centred`, and is replaced by any
    other ("replace"), or contributes zero ("add_remove": 1 + s^2, or 1/4 + s^2). Let k = |<x, x'>| for a replacement by
    x'. For unit vectors the change of W is 2 (1 - k^2), squared, and that of U at most 2 (1 + k), where x' points away
    from x and c = c' = 1, or a quarter of that if centred, where x' points towards x and c = -c' = 1/2. Their sum is
    largest at k = 1 / (2 s^2), or 1 / (8 s^2), but at most 1. Shorter vectors move less. (Of both, the longer one must
    have norm 1, as all terms grow with the norms together; if the other has norm b, the largest value over k grows
    with b.)

    >>> [sensitivity_sq("replace"), sensitivity_sq("replace", centred=True), sensitivity_sq("add_remove")]
    [4.5, 2.53125, 2.0]
    """
    share = 0.25 if centred else 1.0
    square = gram_scale**2
    if adjacency == "add_remove":
        return share + square
    k = min(1.0, share / (2 * square))
    return 2 * share * (1 + k) + 2 * square * (1 - k * k)


@dataclasses.dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) differential privacy budget under a named adjacency.

    It asks that P(A) <= e^epsilon P'(A) + delta for every event A that an adversary may see, where P and P' are the
    laws of what is released from two neighbouring data sets.

    Args:
        epsilon: a number in [1e-9, 1e6].
        delta: a number in (0, 1).
        adjacency: what neighbouring data sets differ in. "replace" changes one user's context and rewards arbitrarily;
            "add_remove" replaces the user's contribution by zero (the number of users is public). For the same epsilon
            that needs two thirds of Gaussian noise under the trust models "silo_local", "central" and "local".

    Raises:
        ValueError, TypeError: if an argument is out of range or of the wrong type.

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
        """Squared joint l2 sensitivity of (sum x y, sum x x') to one user, for equal noise on both (in packed form)."""
        return JOINT_SENSITIVITY_SQ[self.adjacency]

    @property
    def matrix_sensitivity_sq(self) -> float:
        """Squared sensitivity to one user in units of the variance of symmetric noise on the joint matrix of (x, y).

        Such noise has standard deviation sigma on the bias and off the diagonal, and sqrt 2 sigma on the diagonal.
        """
        return MATRIX_SENSITIVITY_SQ[self.adjacency]
