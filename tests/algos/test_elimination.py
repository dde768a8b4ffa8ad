"""Successive elimination equals Algorithm 1 user by user, and has the limits and orderings of the paper."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax import driver
from fedbandit_jax._core import random, wide
from fedbandit_jax.algos import ELIMINATION
from fedbandit_jax.privacy import noise
from fedbandit_jax.privacy.accounting.relaxed import relaxed_secagg
from fedbandit_jax.process import UserProcess
from fedbandit_jax.recording import StretchRecord

P = 0.1
PRIVATE = tuple(name for name in ELIMINATION if name != "SE")
RINGS = tuple(name for name in PRIVATE if name != "DP-SE")
SOME = [pytest.param(n, marks=[pytest.mark.slow] * (n != "Dist-DP-SE")) for n in RINGS]


def algorithm(label, epsilon=1.0, **options):
    mechanism, trust = ELIMINATION[label]
    return fb.algos.successive_elimination(
        epsilon=None if label == "SE" else epsilon, mechanism=mechanism, trust=trust, **options
    )


# Algorithm 1, user by user: blocks of 64 users, of which whole batches of this horizon need up to 16.

STEP = jax.jit(UserProcess.step)
ARMS = fb.envs.arms(means=[0.1, 0.95, 0.45, 0.7])
HORIZON, BLOCK = 9001, 64


def play(algo, key, env=ARMS, block=BLOCK):
    """The process, regret after every user, counters, and the learner after every batch."""
    process = UserProcess(env=env, algo=algo.bind(env.spec, HORIZON), horizon=HORIZON, block=block)
    world, state = process.init(key)
    record, states = StretchRecord(np.arange(1, HORIZON + 1), 1, 1), []
    for k in range(process.n_steps):
        world, state, metrics = STEP(process, key, world, state, jnp.int32(k))
        record = record.add(jax.tree.map(lambda x: np.asarray(x)[None, None, None], metrics), [None])
        states.append(state[1])
    curves = record.curves()
    assert record.played == HORIZON
    assert (curves.status == 0).all()
    counters = {name: curve[0, 0] for name, curve in (curves.communication | curves.counts).items()}
    return process, curves.regret[0, 0], counters, states


def drawn(process, key):
    """(S, K, users) rewards and rounding uniforms: users of a block are its first half, then its second."""
    env, block = process.env, process.block
    world = env.init(random.stream(key, "world"))

    def of_block(k, arm, index):
        source, own = (
            jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(random.stream(key, name), k), arm), index)
            for name in ("users", "choices")
        )
        rewards = env.answers(source, world, arm, block)
        return jnp.concatenate(rewards), random.unit(jnp.concatenate(random.bits(own, block // 2)))

    blocks = -(-HORIZON // 2 // block)  # of the longest batch that two arms can have
    every = np.indices((process.n_steps, env.spec.n_arms, blocks)).reshape(3, -1)
    found = jax.jit(jax.vmap(of_block))(*every)
    return [np.asarray(x).reshape(process.n_steps, env.spec.n_arms, -1) for x in found]


def syncs(process, key):
    return [jax.random.fold_in(random.stream(key, "syncs"), k) for k in range(process.n_steps)]


def lemma_2(b, size, n_active, s, h):
    log = math.log(2 * n_active * b**2 / P)
    return math.sqrt(math.log(4 * n_active * b**2 / P) / (2 * size)) + s * math.sqrt(log) / size + h * log / size


def check(run, expected, batches, bits, failures, *, tolerance=1e-3):
    """Regret after every user, active sets and noisy sums after every batch, counters at every user."""
    _, regret, counters, states = run
    np.testing.assert_allclose(regret, np.cumsum(expected), atol=tolerance)
    totals, k = dict.fromkeys(counters, 0), 0
    curves = {name: np.zeros(HORIZON, int) for name in counters}
    for k, batch in enumerate(batches):
        active, shown = states[k]
        assert np.flatnonzero(active).tolist() == batch.left
        if len(batch.asked) > 1:
            sums = [batch.sums.get(a, 0.0) for a in range(len(active))]
            np.testing.assert_allclose(shown, sums, rtol=1e-5)
            users = batch.size * len(batch.asked)
            totals["rounds"] += 1
            totals["floats"] += users
            totals["bits"] += users * bits(batch.size)
            totals["decodings"] += len(batch.asked)
            totals["decoding failures"] += failures[k]
            totals["eliminations"] += len(batch.asked) - len(batch.left)
        for name, curve in curves.items():
            curve[batch.end - 1 :] = totals[name]
    for name, curve in curves.items():
        np.testing.assert_allclose(counters[name], curve, rtol=1e-6, err_msg=name)  # Shuffle's bits exceed float32
    for left in states[k + 1 :]:  # the last batch does not fit: nothing is released, nothing is learned
        jax.tree.map(np.testing.assert_array_equal, left, states[k])
    assert len(batches) < HORIZON.bit_length()
    assert totals["eliminations"] > 0


def fine_sums(uniforms):
    """Without a ring: sums as fine as float32 resolves."""
    return lambda b, a, x: sum(map(oracles.randomize, x, uniforms[b - 1, a], [2**24] * len(x))) / 2**24


@pytest.mark.parametrize("growth", [2, 4])
def test_se_is_algorithm_1(key, growth):
    run = process, *_ = play(algorithm("SE", growth=growth), key)
    rewards, uniforms = drawn(process, key)
    regret, batches = oracles.successive_elimination(
        process.env.means(process.env.fixed).tolist(),
        HORIZON,
        lambda b, _: growth**b,
        lambda b, n: lemma_2(b, growth**b, n, 0, 0),
        lambda b, a, i: rewards[b - 1, a, i],
        fine_sums(uniforms),
    )
    check(run, regret, batches, lambda _: 32, [0] * len(batches))
    assert len(batches[-1].left) == 1  # and the users of one arm are not asked any more


def test_dp_se_is_sajed_and_sheffet_s(key):
    """Round-robin: regret is exact whenever all arms have had as many users, and linear in between."""
    epsilon = 2.0
    env = fb.envs.arms(means=[0.1, 0.95, 0.5, 0.9])  # two arms are left, and the second epoch is cut
    run = process, found, *_ = play(algorithm("DP-SE", epsilon), key, env)
    rewards, uniforms = drawn(process, key)
    laplace = [noise.laplace(sync, 1 / epsilon, (process.env.spec.n_arms,)) for sync in syncs(process, key)]
    plain = fine_sums(uniforms)

    def logs(e, n):
        return math.log(8 * n * e**2 / P), math.log(4 * n * e**2 / P)

    def size(e, n):
        sampling, private = logs(e, n)
        return int(max(32 * sampling * 4**e, 8 * private * 2**e / epsilon)) + 1

    def half_threshold(e, n):
        sampling, private = logs(e, n)
        return math.sqrt(sampling / (2 * size(e, n))) + private / (epsilon * size(e, n))

    found_size, found_radius = process.algo.users[:2, 1:], process.algo.radius[:2, 1:]
    np.testing.assert_array_equal(found_size, [[size(e, n) for n in range(1, 5)] for e in (1, 2)])
    np.testing.assert_allclose(found_radius, [[half_threshold(e, n) for n in range(1, 5)] for e in (1, 2)], rtol=1e-6)
    regret, batches = oracles.successive_elimination(
        process.env.means(process.env.fixed).tolist(),
        HORIZON,
        size,
        half_threshold,
        lambda e, a, i: rewards[e - 1, a, i],
        lambda e, a, x: plain(e, a, x) + float(laplace[e - 1][a]),
        round_robin=True,
    )
    check(run, regret, batches, lambda _: 32, [0] * len(batches), tolerance=1.0)
    start, expected = 0, np.cumsum(regret)
    for batch in [*batches, oracles.Batch(HORIZON, 0, batches[-1].left, {}, [])]:
        even = np.arange(start, batch.end, len(batch.asked))[1:] - 1
        np.testing.assert_allclose(found[even], expected[even], atol=1e-3)
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
        return Printed(g, tau, (2 + root / s) / epsilon, root / g, noise.skellam, (scale**2,))
    if name == "Dist-CDP-SE":
        tau = math.ceil(scale * math.sqrt(2 * log))
        return Printed(g, tau, (root + root / s) / epsilon, 0.0, noise.discrete_gaussian, (scale,))
    if name == "LDP-SE":  # Lemma 5 has a constant without a value: ours are sub-gamma
        tau = math.ceil(scale * (2 * math.sqrt(n * log) + log))
        return Printed(g, tau, (2 * math.sqrt(n) + root) / epsilon, 1 / epsilon, noise.discrete_laplace_sum, (scale, n))
    return Printed(g, math.ceil(scale * log), root / epsilon, 1 / epsilon, noise.discrete_laplace, (scale,))


@pytest.mark.parametrize(
    ("name", "epsilon", "options"),
    [
        *((name, 2.0 if name == "LDP-SE" else 1.0, {}) for name in RINGS),  # LDP-SE ends in the second of two arms
        ("Dist-DP-SE", 2.0, {"growth": 4, "block": 2**16}),
        ("Dist-RDP-SE", 1.0, {"radius": "exact"}),
    ],
)
def test_ring_protocols_are_algorithm_1(key, name, epsilon, options):
    """Algorithms 2 and 3 on Python integers, with the noise that the run drew."""
    options = {"block": BLOCK, "growth": 2, **options}
    block, growth = options.pop("block"), options["growth"]
    algo = algorithm(name, epsilon, **options)
    run = process, *_ = play(algo, key, block=block)
    rewards, uniforms = drawn(process, key)
    n_sums = process.n_steps * process.env.spec.n_arms
    law = [printed(name, growth ** (k + 1), epsilon, n_sums) for k in range(process.n_steps)]

    def radius(b, n):
        if "radius" in options:  # test_radius.py has these
            return float(process.algo.radius[b - 1, n])
        return lemma_2(b, growth**b, n, law[b - 1].s, law[b - 1].h)

    def draw(sync, *parameters):
        return law[0].sampler(jax.random.split(sync, 3)[0], *parameters, (process.env.spec.n_arms,))

    columns = [np.asarray(column) for column in zip(*(x.parameters for x in law))]
    columns = [c.astype(np.int32 if c.dtype == int else np.float32) for c in columns]
    noises = jax.jit(jax.vmap(draw))(jnp.stack(syncs(process, key)), *columns)
    noises = wide.to_int(noises) if isinstance(noises, wide.Wide) else np.asarray(noises).astype(object)
    failures = [0] * process.n_steps

    def add_up(b, a, x):
        g, tau, *_ = law[b - 1]
        encoded = sum(map(oracles.randomize, x, uniforms[b - 1, a], [g] * len(x)))
        z, failed = oracles.analyze(encoded + noises[b - 1, a], len(x), g, tau)
        failures[b - 1] += failed
        return z

    def bits(n):
        g, tau, *_ = next(x for k, x in enumerate(law) if growth ** (k + 1) == n)
        m = n * g + 2 * tau + 1
        return (
            relaxed_secagg(epsilon / 2, 1 / (2 * HORIZON), n, m).bits if "Shuffle" in name else math.ceil(math.log2(m))
        )

    regret, batches = oracles.successive_elimination(
        process.env.means(process.env.fixed).tolist(),
        HORIZON,
        lambda b, _: growth**b,
        radius,
        lambda b, a, i: rewards[b - 1, a, i],
        add_up,
    )
    check(run, regret, batches, bits, failures)


@pytest.mark.parametrize("radius", ["theory", "exact"])
def test_gap_of_one(key, radius):
    """Sums are 0 and n: the worse arm is dropped by the first batch with 2 beta < 1, and costs nothing from then on."""
    env = fb.envs.arms(means=[0, 1], rewards="bernoulli")
    process, regret, counters, _ = play(algorithm("SE", radius=radius), key, env)
    users = np.cumsum(process.algo.users[:, 2])
    last = np.flatnonzero(process.algo.radius[:, 2] < 0.5)[0]
    if radius == "theory":
        assert lemma_2(last + 1, 2.0 ** (last + 1), 2, 0, 0) < 0.5 <= lemma_2(last, 2.0**last, 2, 0, 0)
    assert regret[-1] == users[last]
    end = 2 * users[last]
    assert (regret[end - 1 :] == regret[-1]).all()
    assert counters["bits"][end - 1] == counters["bits"][-1] == 32 * end
    assert counters["eliminations"][end - 2 : end].tolist() == [0, 1]


def test_one_arm_left(key):
    """With intervals of no width one arm is left soon: for ever, at no cost or at its gap, and nobody is asked."""
    env = fb.envs.arms(means=[0.4, 0.6], rewards="bernoulli")
    algo = algorithm("SE").bind(env.spec, HORIZON)
    algo = algo.replace(radius=np.zeros_like(algo.radius))
    survivors = set()
    for seed in range(8):
        _, regret, counters, states = play(algo, jax.random.fold_in(key, seed), env)
        (alone,) = np.flatnonzero(states[-1].active)
        end = np.argmax(counters["eliminations"])  # users before the last of the two
        np.testing.assert_allclose(np.diff(regret[end:]), 0.2 * (alone == 0), atol=1e-5)
        assert len(set(counters["bits"][end:])) == 1
        assert counters["bits"][-1] == 32 * (end + 1)
        survivors.add(int(alone))
    assert survivors == {0, 1}


def test_failures_are_counted_of_arms_that_are_asked(key):
    """Two of four are, and the sums of all four are beyond the ring."""
    algo = algorithm("CDP-SE").bind(ARMS.spec, HORIZON)
    beyond = jax.tree.map(lambda word: jnp.full(4, word[3]), algo.protocol.modulus)
    state = algo.init(key, ARMS.spec)._replace(active=jnp.array([True, False, True, False]))
    _, report = jax.jit(algo.conclude)(key, 3, state, beyond)
    assert report.counts["decoding failures"] == report.counts["decodings"] == 2


def test_nothing_fits(key):
    """Seven users, two for each of four arms: all are served, nothing is sent, and the certificate says so."""
    result = fb.simulate(ARMS, algorithm("Dist-DP-SE"), horizon=7, key=key, n_seeds=2)
    means = np.asarray(ARMS.means(ARMS.fixed))
    np.testing.assert_allclose(
        np.diff(result.regret, prepend=0), [(means.max() - means)[[0, 0, 1, 1, 2, 2, 3]]] * 2, atol=1e-6
    )
    assert not any(curve.any() for curve in (*result.communication.values(), *result.counts.values()))
    assert "nothing is released: T = 7 users end before the first batch of 4 arms does" in result.certificate.reason


# What the driver does with it.

FOUR = algorithm("Dist-DP-SE", 0.2, growth=4)  # at which seeds differ


def simulate(algo=FOUR, env=ARMS, **options):
    return fb.simulate(env, algo, **{"horizon": HORIZON, "key": jax.random.key(0), "n_seeds": 3, **options})


def test_seeds_side_by_side_equal_each_alone():
    result = simulate()
    np.testing.assert_array_equal(result.rounds, np.arange(1, HORIZON + 1))
    for seed in range(3):
        _, regret, counters, _ = play(FOUR, jax.random.fold_in(jax.random.key(0), seed), block=2**16)
        np.testing.assert_allclose(result.regret[seed], regret, rtol=1e-6)
        for name, curve in (result.communication | result.counts).items():
            np.testing.assert_array_equal(curve[seed], counters[name])
    assert len(np.unique(result.regret[:, -1])) > 1


def test_records_on_a_logarithmic_axis():
    fine, coarse = simulate(), simulate(stride="log")
    np.testing.assert_array_equal(coarse.regret, fine.regret[:, coarse.rounds - 1])
    np.testing.assert_array_equal(coarse.communication["bits"], fine.communication["bits"][:, coarse.rounds - 1])
    ratios = np.diff(np.log(coarse.rounds[coarse.rounds > 100]))
    assert ratios.max() < 0.05
    assert coarse.rounds[0] == 1
    assert coarse.rounds[-1] == HORIZON


def test_interrupted_runs_continue(tmp_path, monkeypatch):
    whole, add, calls = simulate(), StretchRecord.add, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return add(self, *arguments)

    monkeypatch.setattr(StretchRecord, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulate(checkpoint=tmp_path / "run")
    monkeypatch.setattr(StretchRecord, "add", add)
    with pytest.raises(ValueError, match="belongs to another run"):
        simulate(FOUR.replace(epsilon=3.0), checkpoint=tmp_path / "run")
    for _ in range(2):  # the second time it is finished, and read back
        resumed = simulate(checkpoint=tmp_path / "run")
        for name, curve in (whole.communication | whole.counts | {"regret": whole.regret}).items():
            other = (resumed.communication | resumed.counts | {"regret": resumed.regret})[name]
            np.testing.assert_array_equal(other, curve)


@pytest.mark.parametrize("name", ELIMINATION)
def test_numbers_do_not_recompile(name):
    """Processes that differ in numbers are one program: the same structure, shapes and types."""
    numbers = {"epsilon": [1e-3, 0.1, 7.0, 100.0], "scale": [1.0, 12.5], "delta": [0.1], "radius": ["theory", "exact"]}
    if name == "DP-SE":
        del numbers["radius"]
    else:
        numbers["failure"] = [0.01, 0.2]  # of DP-SE it decides how long epochs are
    algo, spec = algorithm(name), fb.envs.arms().spec
    variants = [algo.replace(**{k: v}) for k in numbers if k in algo.parameters() for v in numbers[k]]
    signatures = {
        driver.signature(UserProcess(env=ARMS, algo=variant.bind(spec, 10**5), horizon=10**5)) for variant in variants
    }
    assert len(variants) > 1
    assert len(signatures) == 1


@fb.pytree
class Counting:
    """Arms that count how often they are traced."""

    inner: fb.envs.RandomArms
    counter: tuple = fb.static()

    @property
    def spec(self):
        return self.inner.spec

    def init(self, key):
        return self.inner.init(key)

    def means(self, world):
        return self.inner.means(world)

    def answers(self, key, world, arm, size):
        self.counter[0].append(1)
        return self.inner.answers(key, world, arm, size)


class Counter(list):
    """Hashable by identity, so that it can be a static field."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


@pytest.mark.parametrize("name", ["Dist-DP-SE", *(pytest.param(n, marks=pytest.mark.slow) for n in ELIMINATION)])
def test_a_sweep_compiles_once_and_equals_single_runs(name, monkeypatch):
    monkeypatch.setattr(UserProcess, "check", lambda *_: None)  # which traces once more
    options = dict(horizon=HORIZON, key=jax.random.key(0), n_seeds=3)
    algo, epsilons = algorithm(name, growth=4), [0.5, 2.0, 8.0]
    grid = None if name == "SE" else {"epsilon": epsilons}
    counters = [Counter(), Counter()]
    single = [
        fb.simulate(
            Counting(inner=ARMS, counter=(counters[0],)), algo if grid is None else algo.replace(epsilon=e), **options
        )
        for e in epsilons
    ]
    sweep = fb.sweep(Counting(inner=ARMS, counter=(counters[1],)), [algo], grid=grid, **options)
    assert len(counters[0]) == len(counters[1]) > 0
    for label, alone in zip(sweep.labels, single):
        np.testing.assert_allclose(sweep[label].regret, alone.regret, rtol=1e-6)
        for kind, curve in alone.communication.items():
            np.testing.assert_array_equal(sweep[label].communication[kind], curve)


# What the paper reports, over paired instances: the same arms and users for every algorithm.

ALPHA = 1e-3


@cache
def regrets(name, epsilon, radius="theory", horizon=100_000, n_arms=5, n_seeds=40):
    """Regret (n_seeds, N) of random instances."""
    env, algo = fb.envs.arms(n_arms=n_arms), algorithm(name, epsilon, radius=radius)
    return fb.simulate(env, algo, horizon=horizon, key=jax.random.key(1), n_seeds=n_seeds, stride="log").regret


def smaller(a, b):
    """Is a < b on paired instances, by a sign test of those that differ?"""
    less, more = (a[:, -1] < b[:, -1]).sum(), (a[:, -1] > b[:, -1]).sum()
    return stats.binom.sf(less - 1, less + more, 0.5) < ALPHA


@pytest.mark.parametrize("name", SOME)
def test_without_noise_it_is_se(name):
    """epsilon = 500: the regret of SE at every user, for all seeds but those where a mean is next to a threshold."""
    plain = regrets("SE", None)
    equal, differ = (np.isclose(regrets(name, epsilon), plain, rtol=1e-5).all(1).mean() for epsilon in (500.0, 0.1))
    assert equal >= 0.9
    assert differ <= 0.1


def test_without_noise_dp_se_does_not_depend_on_epsilon():
    quiet, quieter, noisy = (regrets("DP-SE", epsilon) for epsilon in (250.0, 500.0, 0.1))
    assert np.isclose(quiet, quieter, rtol=1e-5).all(1).mean() >= 0.9
    assert np.isclose(noisy, quieter, rtol=1e-5).all(1).mean() <= 0.1


def orderings(**options):
    """Of the paper's Figure 4 and Section 7."""
    for epsilon in (0.1, 1.0):
        ldp, pure, rdp, zcdp = (
            regrets(f"{name}-SE", epsilon, **options) for name in ("LDP", "Dist-DP", "Dist-RDP", "Dist-CDP")
        )
        for better in (pure, rdp, zcdp):
            assert smaller(better, ldp)
            assert smaller(regrets("SE", None, **options), better)
        assert smaller(zcdp, rdp)
        assert smaller(rdp, pure)


@pytest.mark.slow
def test_orderings():
    orderings()


@pytest.mark.slow
@pytest.mark.parametrize("n_arms", [5, 10])
def test_orderings_at_the_paper_s_size(n_arms):
    options = dict(horizon=10**6, n_arms=n_arms)
    orderings(**options)
    for epsilon in (0.1, 1.0):
        ldp, pure, cdp, shuffle = (
            regrets(f"{name}-SE", epsilon, **options) for name in ("LDP", "Dist-DP", "CDP", "Shuffle-DP")
        )
        assert abs(pure[:, -1].mean() / cdp[:, -1].mean() - 1) < 0.1
        assert smaller(cdp, ldp)
        assert smaller(shuffle, ldp)
        assert smaller(pure, shuffle)


@pytest.mark.parametrize("name", ["SE", *SOME])
def test_exact_radii_cost_less(name):
    for epsilon in {"SE": [None], "LDP-SE": [1.0]}.get(name, [0.1, 1.0]):  # of LDP-SE no arm is dropped at 0.1
        assert smaller(regrets(name, epsilon, "exact"), regrets(name, epsilon))


@jax.jit
def decoded_sums(protocol, keys, collected):
    """(S, n_runs) of all batches."""
    return jax.vmap(lambda key, k, sums: protocol.decode(key, k, sums).sums)(keys, jnp.arange(len(keys)), collected)


@pytest.mark.parametrize("name", SOME)
def test_intervals_hold(key, name):
    """Fair coins for rewards: the interval of an arm and batch misses the mean no more often than its part of 3 p."""
    n_runs, n_arms, p = 2000, 4, 0.3
    missed = {}
    for radius in ("theory", "exact"):
        bound = algorithm(name, 0.3, radius=radius, failure=p).bind(fb.envs.arms(n_arms=n_arms).spec, 50_000)
        asked = 2 * np.cumsum(bound.users[:, 2]) <= 50_000
        sizes, steps = bound.users[asked, 2][:, None], bound.protocol.steps[asked].astype(int)[:, None]
        heads = np.random.default_rng(0).binomial(sizes, 0.5, (len(sizes), n_runs)) * steps
        collected = wide.Wide(*((heads >> shift).astype(np.uint32) for shift in (32, 0)))
        sums = np.asarray(decoded_sums(bound.protocol, jax.random.split(key, len(sizes)), collected))
        missed[radius] = np.abs(sums / sizes - 0.5) > bound.radius[asked, n_arms, None]
        stated = 3 * p * 6 / (np.pi * np.arange(1, len(sizes) + 1)) ** 2 / n_arms
        assert (stats.binom.sf(missed[radius].sum(1) - 1, n_runs, stated) > ALPHA / len(sizes)).all()
    assert missed["exact"][0].mean() > stated[0] / 20  # not needlessly wide, though Hoeffding's bound is not attained
    assert missed["exact"].sum() > missed["theory"].sum()


NUMBER = "epsilon must be finite and > 0"
PAIRS = "mechanism and trust must be one of fb.algos.ELIMINATION, SE: none, none; .* got"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"epsilon": 0}, ValueError, f"{NUMBER}, got 0"),
        ({"epsilon": -1.0}, ValueError, f"{NUMBER}, got -1.0"),
        ({"epsilon": float("nan")}, ValueError, f"{NUMBER}, got nan"),
        ({"epsilon": float("inf")}, ValueError, f"{NUMBER}, got inf"),
        ({"epsilon": 1e4}, ValueError, r"epsilon must be in \[1e-09, 500\], got 10000.0"),
        ({"epsilon": None}, TypeError, "epsilon must be a number > 0, got None"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a number > 0, got '1'"),
        ({"mechanism": "none", "trust": "none"}, ValueError, "epsilon must be None with mechanism='none', got 1.0"),
        ({"trust": "nobody"}, ValueError, f"{PAIRS} 'discrete_laplace', 'nobody'"),
        ({"mechanism": "skellam", "trust": "local"}, ValueError, f"{PAIRS} 'skellam', 'local'"),
        ({"radius": "small"}, ValueError, "radius must be one of 'theory', 'exact', got 'small'"),
        (
            {"mechanism": "laplace", "trust": "central", "radius": "exact"},
            ValueError,
            "radius must be 'theory' for DP-SE, which has its own, got 'exact'",
        ),
        ({"growth": 1}, ValueError, "growth must be >= 2, got 1"),
        ({"growth": 2.0}, TypeError, "growth must be an integer >= 2, got 2.0"),
        ({"growth": 2000}, ValueError, r"growth must be in \[2, 1024\], got 2000"),
        ({"scale": 0.5}, ValueError, r"scale must be in \[1, 1.67772e\+07\], got 0.5"),
        ({"scale": float("nan")}, ValueError, "scale must be in .*, got nan"),
        ({"failure": 0.0}, ValueError, r"failure must be finite and > 0, got 0.0"),
        ({"failure": 0.5}, ValueError, r"failure must be in \[0, 0.3\], got 0.5"),
        ({"delta": 1.0}, ValueError, r"delta must be in \(0, 1\), got 1.0"),
        ({"messages": 1}, TypeError, "messages must be True or False, got 1"),
        (
            {"mechanism": "laplace", "trust": "central", "messages": True},
            ValueError,
            "messages must be False where users add nothing to their rewards, got True",
        ),
    ],
)
def test_bad_algorithms(options, error, words):
    with pytest.raises(error, match=words):
        fb.algos.successive_elimination(
            **{"epsilon": 1.0, "mechanism": "discrete_laplace", "trust": "secagg", **options}
        )


RING = "epsilon, scale or horizon must be smaller: 25,600,000 steps a reward, at most 2.24; got epsilon = 500"


@pytest.mark.parametrize(
    ("algo", "options", "error", "words"),
    [
        (algorithm("SE"), {"horizon": 3}, ValueError, "horizon must be at least the number of arms 4, got 3"),
        (
            algorithm("SE"),
            {"horizon": 2**31},
            ValueError,
            "horizon must be at most 2,147,418,111 users, got 2,147,483,648",
        ),
        (
            algorithm("Dist-RDP-SE", 500.0, scale=200.0),
            {"horizon": 400_000},
            ValueError,
            f"{RING}, .* batches of up to 65,536 users",
        ),
        (algorithm("Dist-CDP-SE", 500.0, scale=200.0, radius="exact"), {"horizon": 400_000}, ValueError, RING),
        (
            algorithm("CDP-SE", 1e-9, radius="exact"),
            {},
            ValueError,
            r"epsilon must be larger: noise of scale 1,000,000,000 steps, at most 2\^25; got epsilon = 1e-09",
        ),
        (
            algorithm("Dist-RDP-SE", 1.0, scale=2.0**12, messages=True),
            {"horizon": 2**24},
            ValueError,
            "scale or horizon must be smaller: a ring of .* integers, at most 8,796,093,022,208; got .* 4,194,304",
        ),
        (
            algorithm("Dist-DP-SE", messages=True),
            {"horizon": 2**15},
            ValueError,
            "horizon must be shorter with messages=True: 4,096 users share noise at most; got .* up to 8,192 users",
        ),
        (
            algorithm("Shuffle-DP-SE", radius="exact", failure=1e-6),
            {"horizon": 1000},
            ValueError,
            "failure must be larger with radius='exact' and so few users, got 1e-06",
        ),
        (
            algorithm("Dist-DP-SE"),
            {"env": fb.envs.sphere(1, 4, 5)},
            TypeError,
            "env must be multi-armed, such as fb.envs.arms",
        ),
        (
            algorithm("SE", name="S"),
            {"env": fb.envs.sphere(1, 1, 5)},
            ValueError,
            "S needs at least two arms, the environment has 1",
        ),
    ],
)
def test_bad_runs(algo, options, error, words, monkeypatch):
    monkeypatch.setattr(driver, "run", lambda *a, **k: pytest.fail("compiled before checking"))
    with pytest.raises(error, match=words):
        simulate(algo, **options)


@pytest.mark.parametrize("name", PRIVATE)
def test_extremes_fit(name):
    """As many users as there may be, in few batches or many, and little or much privacy: all tables are finite."""
    most, ring = 2**31 - 1 - 2**16, name != "DP-SE"
    settings = [(most, 0.1, dict(growth=g, radius="exact")) for g in (4, 1024)] if ring else []
    for horizon, epsilon, options in [*settings, (most, 0.1, {}), (10**4, 500.0, {}), (10**6, 1e-6, {})]:
        algo, spec = algorithm(name, epsilon, **options), fb.envs.arms().spec
        bound, certificate = (f(spec, horizon) for f in (algo.bind, algo.certificate))
        assert np.isfinite(bound.radius[:, 1:]).all()
        assert bound.users.min() > 0
        assert certificate.claim == "certified"


def test_replace_checks():
    private, plain = algorithm("Dist-DP-SE"), algorithm("SE")
    assert private.replace(epsilon=2.0).epsilon == 2.0
    assert private.replace(growth=4).name == "Dist-DP-SE"
    with pytest.raises(TypeError, match="Dist-DP-SE has no parameter epsilom"):
        private.replace(epsilom=2.0)
    with pytest.raises(TypeError, match="SE has no parameter epsilon, scale"):
        plain.replace(epsilon=2.0, scale=2.0)
    with pytest.raises(ValueError, match=f"{NUMBER}, got -2.0"):
        private.replace(epsilon=-2.0)
