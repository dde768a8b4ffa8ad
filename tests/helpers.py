"""What tests of several rooms share."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb

# A small run, for tests that need any run: its programs are compiled once.
BUDGET = fb.privacy.Budget(1.0, 0.1)
ENV = fb.envs.sphere(3, 4, 5, rewards="gaussian")
PLAIN, PRIVATE = fb.algos.fed_lin_ucb(schedule=5), fb.algos.private_fed_lin_ucb(BUDGET, schedule=5)


def simulate(env=ENV, algo=PRIVATE, **options):
    return fb.simulate(env, algo, **{"horizon": 40, "key": jax.random.key(0), "seeds": 3, **options})


def sweep(algos, **options):
    return fb.sweep(ENV, algos, **{"horizon": 40, "key": jax.random.key(0), "seeds": 3, **options})


def silent(bound):
    """The same bound private algorithm, with a trust model that adds no noise."""
    trust = bound.mechanism.trust
    mute = replace(bound.mechanism, trust=replace(trust, std=np.zeros_like(trust.std)))
    return replace(bound, mechanism=mute, stds=np.zeros_like(bound.stds))


def released(mechanism, key, k, state, x, y):
    """What a mechanism makes of batch k of users x (B, d, M), y (B, M), and its state."""
    return mechanism.step(key, k, state, jnp.einsum("bim,bjm->ij", x, jnp.concatenate([x, y[:, None]], 1)), x, y)


def scripted(contexts, answers, means):
    """A script whose answers and means may be no numbers, which `fb.envs.script` refuses."""
    whole = [np.where(np.isfinite(table), table, 2.0) for table in (answers, means)]
    return replace(fb.envs.script(contexts, *whole), answers=np.float32(answers), means=np.float32(means))


def deep(parameters, *, keep):
    """Parameters of a test: the default tests run those at the positions `keep`, and the slow ones the rest."""
    made = []
    for i, one in enumerate(parameters):
        values = one if isinstance(one, tuple) and not hasattr(one, "_fields") else (one,)
        made.append(pytest.param(*values, marks=[pytest.mark.slow] * (i not in keep)))
    return made
