"""Results that are written down by hand, for tests of files, tables, pages and figures, and a log of visits."""

import copy
import dataclasses
import math

import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.engine.identity import describe
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


PLAIN, PRIVATE = fb.algos.fed_lin_ucb(), fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 1e-6))


def proved(epsilon, **changes):
    """A certificate that gives the epsilon that was asked for."""
    asked = {"epsilon_exact": epsilon, "adjacency": "replace (one user is replaced by any other)", "per_silo": ()}
    return dataclasses.replace(PROVED, epsilon=epsilon, **{**asked, **changes})


def swept(points, *, algos=None, certificates=None, environments=None, bits=None, seeds=3):
    """A result of two rounds: label -> mean of final regret (seeds are 1 apart), or (place in the sweep, mean)."""
    points = {label: one if isinstance(one, tuple) else ({"algorithm": label}, one) for label, one in points.items()}
    labels = tuple(points)
    finals = np.array([[mean + i - (seeds - 1) / 2 for i in range(seeds)] for _, mean in points.values()])
    config = {
        "environments": {label: (environments or {}).get(label, WORLD) for label in labels},
        "algorithms": {label: describe((algos or {}).get(label, PRIVATE)) for label in labels},
        "coordinates": {label: point for label, (point, _) in points.items()},
        **dict(horizon=2, seeds=[[0, seeds]], stride=None, key=[0, 7]),
    }
    sent = np.array([(bits or {}).get(label, 8.0) for label in labels])[:, None, None]
    curve = finals[..., None] * np.array([0.25, 1.0])
    return made(
        seeds,
        2,
        labels,
        regret=curve,
        communication={name: sent * np.ones_like(curve) for name in ("rounds", "floats", "bits")},
        counts={},
        gauges={},
        status=np.zeros(finals.shape, int),
        config=config,
        certificates={
            label: (certificates or {}).get(label, proved(float(points[label][0].get("epsilon", 1))))
            for label in labels
        },
    )


def grid():
    """A sweep over epsilon, in which the larger one comes first, and one algorithm that has none."""
    points = {
        "plain": ({"algorithm": "plain"}, 3.0),
        "ours(epsilon=2.0)": ({"algorithm": "ours", "epsilon": 2.0}, 5.0),
        "ours(epsilon=0.5)": ({"algorithm": "ours", "epsilon": 0.5}, 7.0),
    }
    return swept(points, algos={"plain": PLAIN}, certificates={"plain": no_privacy("it adds no noise")})


def visits(n=400, seed=0):
    """A log of n visits of patients to three hospitals of unequal sizes."""
    rng = np.random.default_rng(seed)
    drug, age = rng.choice(["new", "old", "placebo"], n), rng.integers(20, 80, n)
    return {
        "hospital": rng.choice(["B", "A", "C"], n, p=[0.6, 0.3, 0.1]),
        "patient": rng.integers(0, 50, n),
        "drug": drug,
        "age": age,
        "ward": rng.choice(["x", "y", "z"], n),
        "sex": rng.choice(["M", "F"], n),
        "dose": np.select([drug == "new", drug == "old"], [2.0, 1.0], 0.0),
        "p": np.full(n, 1 / 3),
        "cured": (rng.random(n) < np.where(drug == "new", 0.9 - age / 200, 0.4)).astype(int),
        "days": rng.gamma(2.0, 3.0, n) + 3 * (drug == "old"),
    }
