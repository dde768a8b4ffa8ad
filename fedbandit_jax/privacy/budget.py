"""Privacy budgets, and the sensitivity of the released statistics to one user.

One user has features x, ||x|| <= 1, and reward y in [0, 1]. The user contributes x y to the bias and x x' to the
covariance.
"""

from __future__ import annotations

import dataclasses

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.accounting import EPSILON_RANGE

MAX_NORM = 1 + 1e-6  # largest norm that a unit vector may have in float32, for d <= 30; the noise is inflated to match
ADJACENCY = {
    "replace": "one user's context and rewards replaced by any others",
    "zero_out": "one user's contribution replaced by zero",  # the number of users is public
}


def sensitivity_sq(adjacency: str, weight: float = 1.0, response: float = 1.0, weighted: bool = False) -> float:
    """Computes the supremum of ||change of U||_2^2 + ||change of W||_F^2 by one user with (w x x', x v).

    It is for equal noise on every entry of the packed statistic (see `privacy.packing`), in squared norm. The user has
    ||x|| <= 1, |v| <= V = `response`, and w = W = `weight` or, if `weighted`, any w in [0, W]. Under "replace" another
    user takes their place. Under "zero_out" the contribution becomes zero, and the supremum is W^2 + V^2.

    Suppose that (w', x', v') replaces (w, x, v), with both vectors of norm 1 and c = <x, x'>. The squared change of the
    sums is w^2 + w'^2 - 2 w w' c^2 + v^2 + v'^2 - 2 v v' c. That is convex in (w, w', v, v'), and largest at ends of
    their intervals. With w = w' = W it is at most 2 W^2 (1 - c^2) + 2 V^2 (1 + |c|). This is largest at |c| = min(1,
    V^2 / (2 W^2)). Then it is 2 W^2 + 2 V^2 + V^4 / (2 W^2), or 4 V^2. With w = W and w' = 0 it is W^2 + 2 V^2 (1 +
    |c|). At |c| = 1 it is largest, W^2 + 4 V^2. With w = w' = 0 it is less. A vector of norm r adds what one of norm 1
    adds with r^2 w and r v, within the same bounds. If weights are not free, shorter vectors move less. (The longer has
    norm 1, as all terms grow with the norms together. If the other has norm r, the largest value over c grows with r.)

    >>> [sensitivity_sq("replace"), sensitivity_sq("replace", response=0.5), sensitivity_sq("zero_out")]
    [4.5, 2.53125, 2.0]
    >>> sensitivity_sq("replace", weight=0.25, response=1.0, weighted=True)
    4.0625
    """
    return _largest_move_sq(adjacency, weight**2, response**2, weighted)


def matrix_sensitivity_sq(adjacency: str) -> float:
    """Computes the same for symmetric noise (N + N') / sqrt 2, N iid, on the joint matrix [x y]'[x y] without its last
    entry.

    Such noise has standard deviation sigma on the bias and off the diagonal, and sqrt 2 sigma on the diagonal. The
    packed entries of x x' have twice the variance of the bias. So ||change of W||_F^2 counts half.

    >>> matrix_sensitivity_sq("replace"), matrix_sensitivity_sq("zero_out")
    (4.0, 1.5)
    """
    return _largest_move_sq(adjacency, 0.5, 1.0)


def _largest_move_sq(adjacency: str, w: float, v: float, weighted: bool = False) -> float:
    if adjacency == "zero_out":
        return w + v
    c = min(1.0, v / (2 * w))
    fixed = 2 * v * (1 + c) + 2 * w * (1 - c * c)
    return max(fixed, w + 4 * v) if weighted else fixed


@dataclasses.dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) differential privacy budget under a named adjacency.

    It asks that P(A) <= e^epsilon P'(A) + delta for every event A that an adversary may see. P and P' are the laws of
    the releases from two neighbouring data sets.

    Args:
        epsilon: a number in [1e-9, 1e6].
        delta: a number in (0, 1).
        adjacency: how neighbouring data sets differ. With "replace" one user's context and rewards change arbitrarily.
            With "zero_out" the user's contribution becomes zero (the number of users is public). For the same epsilon
            it needs two thirds of the Gaussian noise under the trust models "silo_local", "central" and "local".

    Raises:
        ValueError, TypeError: if an argument is out of range or of the wrong type.

    Example:
        >>> Budget(epsilon=1.0, delta=0.1)
        Budget(epsilon=1.0, delta=0.1, adjacency='replace')
        >>> Budget(epsilon=-1.0, delta=0.1)
        Traceback (most recent call last):
        fedbandit_jax.BadValue: epsilon must be finite and > 0, got -1.0
    """

    epsilon: float
    delta: float
    adjacency: str = "replace"

    def __post_init__(self):
        validate.within("epsilon", validate.positive("epsilon", self.epsilon), *EPSILON_RANGE)
        validate.probability("delta", self.delta)
        validate.one_of("adjacency", self.adjacency, ADJACENCY)
