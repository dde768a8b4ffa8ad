"""Are 95 % intervals of predicted regret what they say? They are compared with full runs under other seeds.

The settings are none of those by which the numbers in `planning/forecast.py` were chosen. A share of what fails here is
the truth itself, the mean of 24 runs, which is not known exactly.
"""

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
    (fb.envs.sphere(10, 5, 3, rewards="bernoulli"), (0.5, 0.01), 4000),
    (fb.envs.sphere(100, 10, 6, rewards="bernoulli"), (3.0, 1e-6), 1600),
    (fb.envs.gap(20, 2, 2, gap=0.05), (1.0, 1e-3), 4000),
]
RATIOS = (1, 2, 4, 8)  # T / T0


def curves(env, budget, horizon, seed):
    """Of every fourth candidate: all trust models, schedules and widths are among them."""
    demands = Demands(env.spec, horizon, fb.privacy.Budget(*budget), ("silo", "secagg", "server"), None, None, None)
    some = [one for one in candidates(demands) if not one.excluded][::4]
    return fb.sweep(
        env,
        {one.label: one.algo for one in some},
        horizon=horizon,
        key=jax.random.key(seed),
        seeds=TRUTH + SEEDS * PREDICTIONS,
        stride=horizon // 400,
        progress=False,
    )


@pytest.mark.slow
def test_intervals_contain_the_truth():
    inside, widths, errors = ({ratio: [] for ratio in RATIOS} for _ in range(3))
    for i, setting in enumerate(SETTINGS):
        result = curves(*setting, seed=100 + i)
        horizon = setting[2]
        for label in result:
            regret = result[label].regret
            truth = regret[:TRUTH, -1].mean()
            for ratio in RATIOS:
                seen = result.rounds <= horizon // ratio
                for first in range(TRUTH, len(regret), SEEDS):
                    found = forecast(result.rounds[seen], regret[first : first + SEEDS, seen], horizon)
                    inside[ratio].append(found.low <= truth <= found.high)
                    widths[ratio].append(found.high / found.low)
                    errors[ratio].append(np.log(found.regret / truth))
    for ratio in RATIOS:
        print(
            f"T / T0 = {ratio}: {len(inside[ratio])} intervals of {SEEDS} seeds, {np.mean(inside[ratio]):.1%} contain "
            f"the truth, median high / low {np.median(widths[ratio]):.2f}, error of the prediction "
            f"{np.mean(errors[ratio]):+.1%} ± {np.std(errors[ratio]):.1%}"
        )
        assert np.mean(inside[ratio]) >= 0.9
        assert np.median(widths[ratio]) < 4, "an interval says something"
