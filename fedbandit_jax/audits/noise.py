"""The law of the noise itself, in many more draws than runs: its tails and repeated values.

A run of a mechanism is expensive. A draw of its noise is cheap. Honest Gaussian noise in float32 rarely repeats a
value. In its tail it almost never does, since draws are much fewer than values. (Large rounding steps of sums make all
draws of a step equal.) With 23 bits, as in `jax.random.normal`, there are 531 values beyond four standard deviations.
Half of them occur in `DRAWS` draws. Noise omitted once in a thousand runs has one value a thousand times too often.
Noise cast to fewer bits repeats everywhere. The share of honest draws beyond 1, ..., 4 standard deviations is normal.

`privacy.behaviour` measures the size of the noise, and whether it is fresh. This module measures its shape.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.stats import norm

from fedbandit_jax.privacy.behaviour import zero_batch
from fedbandit_jax.privacy.byzantine import RobustMechanism
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.privacy.packing import matrix_weights, packed_size

DRAWS = 2**21  # numbers of noise
ERRORS = 5  # standard errors of tail frequencies
OFTEN = 10  # most draws of one value, besides steps; expected for honest noise: at most 0.12
FAR, TWICE = 4.0, 3  # most repeated draws beyond FAR standard deviations; expected: 0.01


def odd(mechanism: Any, key: Array) -> str:
    """Returns the defect in the law of a bound mechanism's first Gaussian release, or ""; "" for other noise.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=3, n_arms=4, dim=2, rewards="bernoulli")
        >>> algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=5, privacy=fb.privacy.Budget(1.0, 0.1))
        >>> odd(algo.bind(env.spec, horizon=40).mechanism, jax.random.key(0))
        ''
    """
    if not isinstance(mechanism, NoisyMechanism) or mechanism.trust.on_grid or mechanism.trust.needs_users:
        return ""
    mechanism = mechanism.plain() if isinstance(mechanism, RobustMechanism) else mechanism
    size = packed_size(mechanism.statistic.dim)
    drawn = np.asarray(_drawn(mechanism, key, -(-DRAWS // size))).reshape(-1, size)
    weights = matrix_weights(size) if mechanism.trust.joint_matrix else np.ones(size)
    twice, z = 0, []
    for weight in np.unique(weights):
        alike = np.abs(drawn[:, weights == weight]).reshape(-1)
        spread = math.sqrt(np.mean(alike.astype(float) ** 2))
        if not spread:
            return "its noise is zero"
        values, often = np.unique(alike, return_counts=True)
        alike_by_steps = len(alike) * 2 * norm.pdf(0) * mechanism.row_step / spread
        if often.max() > OFTEN + 3 * alike_by_steps:
            value = values[often.argmax()] / spread
            return (
                f"its noise takes the value {value:.6g}, in standard deviations, {often.max()} times in {len(alike):,}"
            )
        twice += int((often[values > FAR * spread] - 1).sum())
        z.append(alike / spread)
    if twice > TWICE:
        return f"its noise repeats {twice} values beyond {FAR:g} standard deviations in {drawn.size:,} draws"
    for far in np.arange(1.0, FAR + 1):
        count, wanted = sum(int((one > far).sum()) for one in z), 2 * norm.sf(far) * drawn.size
        if abs(count - wanted) > ERRORS * math.sqrt(wanted):
            return f"its noise is beyond {far:g} standard deviations {count:,} times, a normal law {wanted:,.0f} times"
    return ""


@functools.partial(jax.jit, static_argnums=2)
def _drawn(mechanism: NoisyMechanism, key: Array, n: int) -> Array:
    """Draws packed first releases of n runs on zero data, or the first silo's message if messages are seen."""
    dim, nothing = mechanism.statistic.dim, zero_batch(mechanism)

    def run(key: Array) -> Array:
        statistics, state = mechanism.step(key, jnp.int32(1), mechanism.init(dim), *nothing)
        if mechanism.shows_silos and not mechanism.trust.shows_sum:
            return state.view[0].reshape(-1)[: packed_size(dim)]
        return mechanism.statistic.pack(statistics)

    return lax.map(run, jax.random.split(key, n), batch_size=2**12)
