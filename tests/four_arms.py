"""Successive elimination on four arms, one batch at a time: what its tests share."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedbandit_jax as fb
from fedbandit_jax.engine.curves import StretchTally
from fedbandit_jax.engine.runners import BatchedArms
from fedbandit_jax.privacy import samplers

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


class Law(NamedTuple):
    """How n users are added up. Theorems 1-6; but tau is for a hundredth of p for all sums together, not p for each."""

    g: int = 2**24  # steps of a unit; these are as fine as float32 resolves
    tau: int | None = None  # None: there is no ring
    s: float = 0.0  # and h, of Lemma 2
    h: float = 0.0
    sampler: Callable | None = None
    parameters: tuple = ()


def printed(name, n, epsilon, n_sums, s=10.0):
    if name == "SE":
        return Law()
    if name == "DP-SE":  # the largest power of 2 for which noise of scale g / epsilon is at most 4096 steps wide
        return Law(8192, sampler=samplers.discrete_laplace, parameters=(8192 / epsilon,))
    log, root = math.log(2 * 100 * n_sums / P), math.sqrt(2)
    if name == "Shuffle-DP-SE":
        epsilon, log = epsilon / 2, math.log(4 * HORIZON)
    g = math.ceil((s if name in ("Dist-RDP-SE", "Dist-CDP-SE") else 1) * epsilon * math.sqrt(n))
    scale = g / epsilon
    if name == "Dist-RDP-SE":
        tau = math.ceil(2 * scale * math.sqrt(log) + root * log)
        return Law(g, tau, (2 + root / s) / epsilon, root / g, samplers.skellam, (scale**2,))
    if name == "Dist-CDP-SE":
        tau = math.ceil(scale * math.sqrt(2 * log))
        return Law(g, tau, (root + root / s) / epsilon, 0.0, samplers.discrete_gaussian, (scale,))
    if name == "LDP-SE":  # Lemma 5 has a constant without a value: ours are sub-gamma
        tau, s = math.ceil(scale * (2 * math.sqrt(n * log) + log)), (2 * math.sqrt(n) + root) / epsilon
        return Law(g, tau, s, 1 / epsilon, samplers.discrete_laplace_sum, (scale, n))
    return Law(g, math.ceil(scale * log), root / epsilon, 1 / epsilon, samplers.discrete_laplace, (scale,))


def lemma_2(b, size, n_active, s, h):
    log = math.log(2 * n_active * b**2 / P)
    return math.sqrt(math.log(4 * n_active * b**2 / P) / (2 * size)) + s * math.sqrt(log) / size + h * log / size
