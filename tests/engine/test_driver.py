"""Seeds that advance side by side are the seeds that would have advanced alone."""

import jax
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine import layout
from fedbandit_jax.engine.process import RoundProcess
from fedbandit_jax.engine.salt import digest, salt


def test_seeds_are_grouped_without_remainder():
    """A remainder would be compiled again, and on two cores two batched LAPACK calls can wait for each other."""
    state = np.zeros((24, layout.CACHE_BYTES // 7 // 4), np.float32)  # seven seeds fill the cache
    assert layout._seeds_together(24, (), state, 0) == 6
    assert layout._seeds_together(23, (), state[:23], 0) == 1
    assert layout._seeds_together(24, (), state[:, :10], 0) == 24


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        dict(trust="secagg", release="blt", confidence="known_noise", regularizer="project"),
        pytest.param(dict(trust="shuffle_vector_sum"), marks=pytest.mark.slow),
        pytest.param(dict(release="honaker", confidence="known_noise", regularizer="project"), marks=pytest.mark.slow),
    ],
    ids=lambda options: " ".join(options.values()),
)
def test_seeds_side_by_side_equal_each_alone(key, options):
    """At 2,627 statistics a release, where jaxlib 0.10.2 has read unwritten memory with two seeds on two cores."""
    env = fb.envs.sphere(4, 5, 71, rewards="bernoulli")
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 1e-4), schedule=5).replace(**options)
    both = fb.simulate(env, algo, horizon=40, key=key, n_seeds=2)
    bound = algo.bind(env.spec, 40)
    process = RoundProcess(env=env, algo=bound, horizon=40, salt=salt(digest(env), digest(bound)))
    init, step = jax.jit(process.init), jax.jit(process.step)
    for seed in range(2):
        alone = jax.random.fold_in(key, seed)
        world, state = init(alone)
        total = 0.0
        for k in range(process.n_steps):
            world, state, metrics = step(alone, world, state, k)
            total += float(metrics.gap.sum())
        assert both.regret[seed, -1] == pytest.approx(total, rel=1e-5)
