"""Searches for the best arm in a result: when each seed stopped, and with which arm."""

from __future__ import annotations

import dataclasses

import numpy as np

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


def best_arm(result: Result) -> BestArm:
    """Reads when each seed of a result stopped, and with which arm.

    Args:
        result: of algorithms that recommend an arm, such as `fb.algos.TopTwo`, with the record of the example.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.arms(means=[0.2, 0.8], rewards="bernoulli")
        >>> record = {"recommended": fb.record.final(fb.record.recommended)}
        >>> run = dict(horizon=2_000, key=jax.random.key(0), seeds=20, record=record)
        >>> found = fb.best_arm(fb.simulate(env, fb.algos.TopTwo(), **run))
        >>> bool(found.stopped.all()), bool(found.right.all()), found.rounds.shape
        (True, True, (20,))
    """
    validate.instance("result", result, Result, "an fb.Result")
    names = [f"recommended['{part}']" for part in PARTS]
    if absent := [name for name in names if name not in result.records]:
        must = "must have record={'recommended': fb.record.final(fb.record.recommended)}"
        raise BadValue("result", must, result, got=f"no {absent[0]}")
    arm, right, since = (result.records[name][..., -1] for name in names)
    stopped = since > 0
    rounds = np.where(stopped, since, result.config["horizon"])
    return BestArm(stopped, rounds, arm, right.astype(bool), result.communication["rounds"][..., -1].astype(int))
