"""Successive elimination on four arms, one batch at a time: what its tests share."""

import math

import jax
import jax.numpy as jnp
import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.engine.curves import StretchTally
from fedbandit_jax.engine.runners import BatchedArms

P = 0.1
A = fb.algos
KINDS = A.SE, A.DPSE, A.CDPSE, A.LDPSE, A.DistDPSE, A.DistRDPSE, A.DistCDPSE, A.ShuffleDPSE
VARIANTS = {kind.title: kind for kind in KINDS}
PRIVATE = tuple(name for name in VARIANTS if name != "SE")
RINGS = tuple(name for name in PRIVATE if name != "DP-SE")


def algorithm(label, epsilon=1.0, **options):
    return VARIANTS[label](*([] if label == "SE" else [epsilon]), **options)


INIT, STEP = jax.jit(BatchedArms.init), jax.jit(BatchedArms.step)
ARMS = fb.envs.arms(means=[0.1, 0.95, 0.45, 0.7])
HORIZON, BLOCK = 9001, 64


def play(algo, key, env=ARMS, block=BLOCK):
    """The runner, regret after every user, counters, and the learner after every batch."""
    runner = BatchedArms(env=env, algo=algo.bind(env.spec, HORIZON), horizon=HORIZON, block=block)
    world, state = INIT(runner, key)
    record, states = StretchTally(np.arange(1, HORIZON + 1), 1, 1), []
    for k in range(runner.n_steps):
        world, state, metrics = STEP(runner, key, world, state, jnp.int32(k))
        record = record.add(jax.tree.map(lambda x: np.asarray(x)[None, None, None], metrics), [None])
        states.append(state[1])
    curves = record.curves()
    assert record.played == HORIZON
    assert (curves.status == 0).all()
    counters = {name: curve[0, 0] for name, curve in (curves.communication | curves.counts).items()}
    return runner, curves.regret[0, 0], counters, states


def lemma_2(b, size, n_active, s, h):
    log = math.log(2 * n_active * b**2 / P)
    return math.sqrt(math.log(4 * n_active * b**2 / P) / (2 * size)) + s * math.sqrt(log) / size + h * log / size
