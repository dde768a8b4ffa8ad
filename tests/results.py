"""Results that are written down by hand, for tests of what is made of results."""

import copy
import math

import numpy as np

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.report.result import Result

PROVED = Certificate(
    claim="certified",
    reason="nan",  # a text that looks like a number stays a text
    epsilon=1.0,
    delta=1e-6,
    epsilon_exact=math.inf,
    noise_std=np.float32(0.1),  # pyright: ignore[reportArgumentType]
    per_silo=((1.0, 1e-6, math.inf), (2.0, 1e-6, 1.5)),
    visits=((2, 1e-6, 2.0, 3.0),),
)


WORLD = {"type": "Sphere", "n_agents": 3, "noise": math.inf, "spec": {"n_agents": 3, "dim": 2}}


def made(seeds=2, horizon=3, labels=("plain", "private"), **changes):
    """A result of two algorithms, written down by hand."""
    curve = np.arange(len(labels) * seeds * horizon, dtype=float).reshape(len(labels), seeds, horizon)
    config = {
        "environments": {label: copy.deepcopy(WORLD) for label in labels},
        "algorithms": {label: {"type": "Made", "lambda": 0.5} for label in labels},
        "coordinates": {label: {"algorithm": label} for label in labels},
        **dict(horizon=horizon, seeds=[[0, seeds]], stride=None, key=[0, 7]),
    }
    attributes = dict(
        rounds=np.arange(1, horizon + 1),
        regret=curve,
        communication={name: curve.astype(int) for name in ("rounds", "floats", "bits")},
        counts={"decodings": curve.astype(int)},
        gauges={"adjusted Rand index": np.where(curve > 4, np.nan, curve)},
        status=np.zeros(curve.shape[:2], int),
        certificates={label: PROVED if i else no_privacy("it adds no noise") for i, label in enumerate(labels)},
        config=config,
        provenance={"fedbandit_jax": "0.1", "seconds": np.float64(0.25)},
    )
    return Result(**{**attributes, **changes})
