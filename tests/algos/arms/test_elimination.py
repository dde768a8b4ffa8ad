"""Successive elimination equals Algorithm 1 user by user."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, BLOCK, HORIZON, RINGS, P, algorithm, lemma_2, play
from helpers import deep
from oracles import elimination as oracles

import fedbandit_jax as fb
from fedbandit_jax.core import random, wide
from fedbandit_jax.privacy import samplers
from fedbandit_jax.privacy.accounting.shuffling import relaxed_secagg

# Blocks of 64 users, of which whole batches of this horizon need up to 16.


def drawn(runner, key):
    """(S, K, users) rewards and rounding uniforms: users of a block are its first half, then its second."""
    env, block = runner.env, runner.block
    world = env.init(random.stream(key, "world"))

    def of_block(k, arm, index):
        source, own = (
            jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(random.stream(key, name), k), arm), index)
            for name in ("users", "choices")
        )
        rewards = env.answers(source, world, arm, block)
        return jnp.concatenate(rewards), random.unit(jnp.concatenate(random.bits(own, block // 2)))

    blocks = -(-HORIZON // 2 // block)  # of the longest batch that two arms can have
    every = np.indices((runner.n_steps, env.spec.n_arms, blocks)).reshape(3, -1)
    found = jax.jit(jax.vmap(of_block))(*every)
    return [np.asarray(x).reshape(runner.n_steps, env.spec.n_arms, -1) for x in found]


def syncs(runner, key):
    return [jax.random.fold_in(random.stream(key, "syncs"), k) for k in range(runner.n_steps)]


def expected(runner, key, rewards, *rules, **options):
    """Regret and batches of the oracle, by its sizes, radii and sums, and the order in which arms take turns."""
    sizes, radius, add_up = rules

    def reward(b, a, i):
        return rewards[b - 1, a, i]

    means = runner.env.means(runner.env.fixed).tolist()
    turns = jax.random.permutation(random.stream(key, "turns"), len(means)).tolist()
    return oracles.successive_elimination(means, HORIZON, sizes, radius, reward, add_up, turns, **options)


def check(run, regret, batches, bits=lambda _: 32, failures=None, *, tolerance=1e-3):
    """Regret after every user, active sets and noisy sums after every batch, counters at every user."""
    _, found, counters, states = run
    np.testing.assert_allclose(found, np.cumsum(regret), atol=tolerance)
    totals, curves = dict.fromkeys(counters, 0), {name: np.zeros(HORIZON, int) for name in counters}
    for k, batch in enumerate(batches):
        active, shown = states[k]
        assert np.flatnonzero(active).tolist() == sorted(batch.left)
        if len(batch.asked) > 1:
            sums = [batch.sums.get(a, 0.0) for a in range(len(active))]
            np.testing.assert_allclose(shown, sums, rtol=1e-5)
            users = batch.size * len(batch.asked)
            for name, more in {
                "rounds": 1,
                "floats": users,
                "bits": users * bits(batch.size),
                "decodings": len(batch.asked),
                "decoding failures": failures[k] if failures else 0,
                "eliminations": len(batch.asked) - len(batch.left),
            }.items():
                totals[name] += more
        for name, curve in curves.items():
            curve[batch.end - 1 :] = totals[name]
    for name, curve in curves.items():
        np.testing.assert_allclose(counters[name], curve, rtol=1e-6, err_msg=name)  # Shuffle's bits exceed float32
    for left in states[len(batches) :]:  # the last batch does not fit: nothing is released, nothing is learned
        jax.tree.map(np.testing.assert_array_equal, left, states[len(batches) - 1])
    assert len(batches) < HORIZON.bit_length()
    assert totals["eliminations"] > 0


def grid_sums(uniforms, g):
    """In a ring that is not left."""
    return lambda b, a, x: sum(map(oracles.randomize, x, uniforms[b - 1, a], [g] * len(x))) / g


@pytest.mark.parametrize("growth", deep([2, 4], keep={0}))
def test_se_is_algorithm_1(key, growth):
    run = runner, *_ = play(algorithm("SE", growth=growth), key)
    rewards, uniforms = drawn(runner, key)
    rules = lambda b, _: growth**b, lambda b, n: lemma_2(b, growth**b, n, 0, 0)
    exact = grid_sums(uniforms, 2**24)  # as fine as float32 resolves
    regret, batches = expected(runner, key, rewards, *rules, exact)
    check(run, regret, batches)
    assert len(batches[-1].left) == 1  # and the users of one arm are not asked any more


def test_dp_se_is_sajed_and_sheffet_s(key):
    """Round-robin: regret is exact whenever all arms have had as many users, and linear in between."""
    epsilon = 2.0
    env = fb.envs.arms(means=[0.1, 0.95, 0.5, 0.9])  # two arms are left, and the second epoch is cut
    run = runner, found, *_ = play(algorithm("DP-SE", epsilon), key, env)
    rewards, uniforms = drawn(runner, key)
    g = 8192  # steps, the largest power of 2 for which noise of scale g / epsilon is at most 4096 steps wide
    draw = jax.jit(lambda sync: samplers.discrete_laplace(sync, g / epsilon, (runner.env.spec.n_arms,)))
    laplace = [draw(jax.random.split(sync, 3)[0]) for sync in syncs(runner, key)]
    exact = grid_sums(uniforms, g)

    def logs(e, n):
        return math.log(8 * n * e**2 / P), math.log(4 * n * e**2 / P)

    def size(e, n):
        sampling, private = logs(e, n)
        return int(max(32 * sampling * 4**e, 8 * private * 2**e / epsilon)) + 1

    def half_threshold(e, n):
        sampling, private = logs(e, n)
        return math.sqrt(sampling / (2 * size(e, n))) + private / (epsilon * size(e, n))

    def sums(e, a, x):
        return exact(e, a, x) + int(laplace[e - 1][a]) / g

    for table, rule in ((runner.algo.users, size), (runner.algo.radius, half_threshold)):
        np.testing.assert_allclose(table[:2, 1:], [[rule(e, n) for n in range(1, 5)] for e in (1, 2)], rtol=1e-6)
    regret, batches = expected(runner, key, rewards, size, half_threshold, sums, round_robin=True)
    check(run, regret, batches, tolerance=1.0)
    start, total = 0, np.cumsum(regret)
    for batch in [*batches, oracles.Batch(HORIZON, 0, batches[-1].left, {}, [])]:
        even = np.arange(start, batch.end, len(batch.asked))[1:] - 1
        np.testing.assert_allclose(found[even], total[even], atol=1e-3)
        assert np.abs(np.diff(found[start : batch.end], 2)).max(initial=0) < 1e-3
        start = batch.end


class Printed(NamedTuple):
    """Theorems 1-6 for batches of n users; but tau is for a hundredth of p for all sums together, not p for each."""

    g: int
    tau: int
    s: float  # and h, of Lemma 2
    h: float
    sampler: Callable
    parameters: tuple


def printed(name, n, epsilon, n_sums, s=10.0):
    log, root = math.log(2 * 100 * n_sums / P), math.sqrt(2)
    if name == "Shuffle-DP-SE":
        epsilon, log = epsilon / 2, math.log(4 * HORIZON)
    g = math.ceil((s if name in ("Dist-RDP-SE", "Dist-CDP-SE") else 1) * epsilon * math.sqrt(n))
    scale = g / epsilon
    if name == "Dist-RDP-SE":
        tau = math.ceil(2 * scale * math.sqrt(log) + root * log)
        return Printed(g, tau, (2 + root / s) / epsilon, root / g, samplers.skellam, (scale**2,))
    if name == "Dist-CDP-SE":
        tau = math.ceil(scale * math.sqrt(2 * log))
        return Printed(g, tau, (root + root / s) / epsilon, 0.0, samplers.discrete_gaussian, (scale,))
    if name == "LDP-SE":  # Lemma 5 has a constant without a value: ours are sub-gamma
        tau, s = math.ceil(scale * (2 * math.sqrt(n * log) + log)), (2 * math.sqrt(n) + root) / epsilon
        return Printed(g, tau, s, 1 / epsilon, samplers.discrete_laplace_sum, (scale, n))
    return Printed(g, math.ceil(scale * log), root / epsilon, 1 / epsilon, samplers.discrete_laplace, (scale,))


CASES = [
    *((name, 2.0 if name == "LDP-SE" else 1.0, {}) for name in RINGS),  # LDP-SE ends in the second of two arms
    ("Dist-DP-SE", 2.0, {"growth": 4, "block": 2**16}),
    ("Dist-RDP-SE", 1.0, {"radius": "exact"}),
]


@pytest.mark.parametrize(("name", "epsilon", "options"), deep(CASES, keep={2}))
def test_ring_protocols_are_algorithm_1(key, name, epsilon, options):
    """Algorithms 2 and 3 on Python integers, with the noise that the run drew."""
    options = {"block": BLOCK, "growth": 2, **options}
    block, growth = options.pop("block"), options["growth"]
    run = runner, *_ = play(algorithm(name, epsilon, **options), key, block=block)
    rewards, uniforms = drawn(runner, key)
    n_sums = runner.n_steps * runner.env.spec.n_arms
    law = [printed(name, growth ** (k + 1), epsilon, n_sums) for k in range(runner.n_steps)]

    def radius(b, n):
        if "radius" in options:  # test_radius.py has these
            return float(runner.algo.radius[b - 1, n])
        return lemma_2(b, growth**b, n, law[b - 1].s, law[b - 1].h)

    def draw(sync, *parameters):
        return law[0].sampler(jax.random.split(sync, 3)[0], *parameters, (runner.env.spec.n_arms,))

    columns = [np.asarray(column) for column in zip(*(x.parameters for x in law))]
    columns = [c.astype(np.int32 if c.dtype == int else np.float32) for c in columns]
    noises = jax.jit(jax.vmap(draw))(jnp.stack(syncs(runner, key)), *columns)
    noises = wide.to_int(noises) if isinstance(noises, wide.Wide) else np.asarray(noises).astype(object)
    failures = [0] * runner.n_steps

    def add_up(b, a, x):
        g, tau, *_ = law[b - 1]
        encoded = sum(map(oracles.randomize, x, uniforms[b - 1, a], [g] * len(x)))
        z, failed = oracles.analyze(encoded + noises[b - 1, a], len(x), g, tau)
        failures[b - 1] += failed
        return z

    def bits(n):
        g, tau, *_ = law[round(math.log(n, growth)) - 1]
        m = n * g + 2 * tau + 1
        if name == "Shuffle-DP-SE":
            return relaxed_secagg(epsilon / 2, 1 / (2 * HORIZON), n, m).bits
        return math.ceil(math.log2(m))

    regret, batches = expected(runner, key, rewards, lambda b, _: growth**b, radius, add_up)
    check(run, regret, batches, bits, failures)


@pytest.mark.slow
def test_failures_are_counted_of_arms_that_are_asked(key):
    """Two of four are, and the sums of all four are beyond the ring."""
    algo = algorithm("CDP-SE").bind(ARMS.spec, HORIZON)
    beyond = jax.tree.map(lambda word: jnp.full(4, word[3]), algo.protocol.modulus)
    state = algo.init(key, ARMS.spec)._replace(active=jnp.array([True, False, True, False]))
    _, report = jax.jit(algo.conclude)(key, 3, state, beyond)
    assert report.counts["decoding failures"] == report.counts["decodings"] == 2
