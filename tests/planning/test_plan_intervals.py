"""Are 95 % intervals of predicted regret what they say? They are compared with full runs under other seeds.

The settings are none of those by which the numbers in `planning/forecast.py` were chosen. A share of what fails here is
the truth itself, the mean of 24 runs, which is not known exactly.
"""

import itertools

import jax
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.planning.candidates import candidates
from fedbandit_jax.planning.demands import Demands
from fedbandit_jax.planning.forecast import forecast

SEEDS, TRUTH, PREDICTIONS = 4, 24, 6  # of each prediction, of the truth, and how many predictions
SETTINGS = [  # environment, (epsilon, delta), T
    (fb.envs.sphere(30, 20, 4, rewards="bernoulli"), (1.0, 1e-5), 2000),
    (fb.envs.gap(20, 2, 2, gap=0.05), (1.0, 1e-3), 4000),
]
RATIOS = (1, 2, 4, 8)  # T / T0


@pytest.mark.slow
def test_intervals_contain_the_truth():
    """Of every fourth candidate: all trust models, schedules and widths are among them."""
    inside, widths = ({ratio: [] for ratio in RATIOS} for _ in range(2))
    for i, (env, budget, horizon) in enumerate(SETTINGS):
        demands = Demands(env.spec, horizon, fb.privacy.Budget(*budget), ("silo", "secagg", "server"), None, None, None)
        algos = {one.label: one.algo for one in candidates(demands) if not one.excluded}
        algos = dict(list(algos.items())[::4])
        options = dict(key=jax.random.key(100 + i), seeds=TRUTH + SEEDS * PREDICTIONS, stride=horizon // 400)
        result = fb.sweep(env, algos, horizon=horizon, **options, progress=False)
        for label, ratio in itertools.product(result, RATIOS):
            regret, seen = result[label].regret, result.rounds <= horizon // ratio
            truth = regret[:TRUTH, -1].mean()
            for first in range(TRUTH, len(regret), SEEDS):
                found = forecast(result.rounds[seen], regret[first : first + SEEDS, seen], horizon)
                inside[ratio].append(found.low <= truth <= found.high)
                widths[ratio].append(found.high / found.low)
    for ratio in RATIOS:
        assert np.mean(inside[ratio]) >= 0.9, ratio
        assert np.median(widths[ratio]) < 4, "an interval says something"
