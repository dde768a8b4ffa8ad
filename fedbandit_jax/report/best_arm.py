"""Searches for the best arm in a result: when each seed stopped, with which arm, and how often it was wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import betaincinv

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.result import Result

PARTS = "arm", "right", "round"  # what `fb.record.recommended` returns


@dataclasses.dataclass(frozen=True, eq=False)
class BestArm:
    """Recommended arms of a result. Arrays are (n_seeds,) from `fb.simulate`, (n_algorithms, n_seeds) from `fb.sweep`.

    Attributes:
        stopped: whether the search stopped before the horizon, or at it.
        rounds: rounds until it stopped, one user each; the horizon if it did not.
        arm: recommended arm; if the search did not stop, the leader at the end.
        right: whether this arm has the largest mean.
        communication: rounds of communication.
    """

    stopped: np.ndarray
    rounds: np.ndarray
    arm: np.ndarray
    right: np.ndarray
    communication: np.ndarray

    def errors(self, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the share of seeds that stopped with a wrong arm, and the ends of its exact interval.

        The interval follows Clopper & Pearson (1934), for each algorithm by itself.

        Args:
            confidence: probability in (0, 1) that an interval holds.

        Returns:
            Three arrays without the axis of seeds.
        """
        tail = (1 - validate.probability("confidence", confidence)) / 2
        wrong, n = np.sum(self.stopped & ~self.right, -1), self.right.shape[-1]
        low = np.where(wrong > 0, betaincinv(np.maximum(wrong, 1), n - wrong + 1, tail), 0.0)
        high = np.where(wrong < n, betaincinv(wrong + 1, np.maximum(n - wrong, 1), 1 - tail), 1.0)
        return wrong / n, low, high


def best_arm(result: Result, record: str = "recommended") -> BestArm:
    """Reads when each seed of a result stopped, and with which arm.

    Args:
        result: of algorithms that recommend an arm, such as `fb.algos.TopTwo`.
        record: the name that `fb.record.final(fb.record.recommended)` has in `record=`.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.arms(means=[0.2, 0.8], rewards="bernoulli")
        >>> record = {"recommended": fb.record.final(fb.record.recommended)}
        >>> run = dict(horizon=2_000, key=jax.random.key(0), seeds=20, record=record)
        >>> found = fb.best_arm(fb.simulate(env, fb.algos.TopTwo(), **run))
        >>> bool(found.stopped.all()), bool(found.right.all()), found.rounds.shape
        (True, True, (20,))
        >>> [float(x.round(2)) for x in found.errors()]
        [0.0, 0.0, 0.17]
    """
    validate.instance("result", result, Result, "an fb.Result")
    validate.instance("record", record, str, "the name of a record")
    names = [f"{record}['{part}']" for part in PARTS]
    if absent := [name for name in names if name not in result.records]:
        raise BadValue("record", "must name an fb.record.final(fb.record.recommended)", record, got=f"no {absent[0]}")
    arm, right, since = (result.records[name][..., -1] for name in names)
    stopped = since > 0
    rounds = np.where(stopped, since, result.config["horizon"])
    return BestArm(stopped, rounds, arm, right.astype(bool), result.communication["rounds"][..., -1].astype(int))
