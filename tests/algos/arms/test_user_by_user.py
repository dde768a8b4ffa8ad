"""Algorithms for arms equal their pseudo-code user by user, with the rewards, coins and noise that their runs draw."""

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import ARMS, BLOCK, HORIZON, INIT, RINGS, Law, P, algorithm, lemma_2, play, printed
from helpers import deep
from oracles import arms as oracles

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.ledger import LEFT_OUT
from fedbandit_jax.core import random, wide
from fedbandit_jax.privacy import tails
from fedbandit_jax.privacy.accounting.shuffling import relaxed_secagg

A = fb.algos
PARETO = fb.envs.arms(means=[0.1, 1.0, 0.2, 0.15], rewards="pareto", shape=[3.0, 8.0, 2.2, 3.0])
LIES = fb.envs.contaminate(PARETO, share=0.01, favoured=2)
CUT = fb.envs.arms(means=[0.1, 0.95, 0.5, 0.9])  # for DP-SE: two arms are left, and the second epoch is cut
BACK = fb.envs.returning(ARMS, 500)  # in the last batches nobody enters
HEAVY = dict(moment=1.03)  # above E X^2 of all four
PURE = A.DistDPSE(1.0)


class Drawn(NamedTuple):
    """Of users 0, 1, ... of an arm in a batch, (S, K, users): a block has its first half, then its second."""

    rewards: np.ndarray
    uniforms: np.ndarray  # for rounding to a grid
    coins: np.ndarray  # for rounding to a bit
    words: np.ndarray  # for flips of bits
    who: np.ndarray  # came, of those who return


STEPS, DRAWN = 32, {}  # algorithms with one environment share draws, of at least so many batches


def drawn(runner, key):
    env, size, n = runner.env, runner.block, max(runner.n_steps, STEPS * BLOCK // runner.block)
    about = env, size, runner.enforces, *jax.random.key_data(key).tolist()
    if about in DRAWN and len(DRAWN[about].rewards) >= n:
        return DRAWN[about]

    def of_block(k, arm, index):
        source, own, flips, came = (
            jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(random.stream(key, name), k), arm), index)
            for name in ("users", "choices", "shares", "who")
        )
        who = env.comers(came, size) if runner.enforces else jnp.zeros(size, jnp.int32)
        rewards = jnp.concatenate(env.answers(source, world, arm, size))
        uniforms = random.unit(jnp.concatenate(random.bits(own, size // 2)))
        return Drawn(rewards, uniforms, random.uniform(own, (size,)), jax.random.bits(flips, (size,)), who)

    world = env.init(random.stream(key, "world"))
    blocks = -(-HORIZON // 2 // size)  # of the longest batch that two arms can have
    every = np.indices((n, env.spec.n_arms, blocks)).reshape(3, -1)
    found = jax.jit(jax.vmap(of_block))(*every)
    DRAWN[about] = Drawn(*(np.asarray(x).reshape(n, env.spec.n_arms, -1) for x in found))
    return DRAWN[about]


@functools.cache
def drawing(sampler, n_arms):
    """Draws the noise of a batch for every arm."""
    return jax.jit(lambda name, *law: sampler(jax.random.split(name, 3)[0], *law, (n_arms,)))


class Server:
    """What the server of a run learns of users, by exact integers."""

    def __init__(self, algo, runner, key):
        self.sums = getattr(algo, "sums", algo)  # the variant of elimination whose noise it has
        self.title, self.unit = getattr(self.sums, "title", ""), getattr(self.sums, "unit", None)
        self.epsilon = getattr(self.sums, "epsilon", math.inf) / (self.unit.visits if self.unit else 1)
        self.came, self.entered = {}, {}  # the batches that a user is in, and how many rewards by (batch, arm)
        self.bound, self.users = runner.algo, drawn(runner, key)
        self.level = np.asarray(self.bound.level) if isinstance(algo, A.TruncatedSE) else None
        self.flips = 1 / (1 + math.exp(self.epsilon)) if isinstance(self.sums, A.RRSE) else None
        self.names = [jax.random.fold_in(random.stream(key, "syncs"), k) for k in range(runner.n_steps)]
        self.k, self.shown = runner.env.spec.n_arms, {}  # `shown`: samples by batch, where they are what is released
        one_arm, budget = hasattr(self.bound, "times"), isinstance(algo, A.SequentialHalving)
        self.n_sums = self.k + 2 if budget else runner.n_steps * (1 if one_arm else self.k)
        self.failures = dict.fromkeys(range(1, runner.n_steps + 1), 0)
        self.noise, self.log_moments = functools.cache(self.noise), functools.cache(self.log_moments)
        self.draw = drawing(self.law(2).sampler, self.k)

    def law(self, n):
        if isinstance(self.sums, A.ThompsonArms):
            return Law(int(self.bound.steps))
        return printed(self.title, n, self.epsilon, self.n_sums)

    def noise(self, b, n):
        kinds = {int: np.int32, float: np.float32}
        parameters = (kinds[type(x)](x) for x in self.law(n).parameters)
        found = self.draw(self.names[b - 1], *parameters)
        return wide.to_int(found) if isinstance(found, wide.Wide) else np.asarray(found).astype(object)

    def enter(self, b, arm, who):
        """Whose rewards enter: one user after the other, at most once in a batch."""
        enters = np.ones(len(who), bool)
        for i, user in enumerate(who.tolist() if self.unit else ()):
            mine = self.came.setdefault(user, [])
            enters[i] = len(mine) < self.unit.visits and all(b - other >= self.unit.apart for other in mine)
            mine += [b] * bool(enters[i])
        self.entered[b, arm] = int(enters.sum())
        return enters

    def add_up(self, b, arm, j, n):
        rewards, uniforms, coins, words, who = (x[b - 1, arm, :n] for x in self.users)
        x = rewards if self.level is None else rewards / (2 * self.level[b - 1]) + np.float32(0.5)
        x, law = np.where(self.enter(b, arm, who), x.clip(0, 1), np.float32(0)), self.law(n)
        if self.flips is not None:
            spared = np.isinf(rewards) & (self.sums.corrupted == "messages")
            flipped = (words < math.ceil(np.float32(self.flips) * 2**32)) & ~spared
            return (((coins < x) ^ flipped).sum() - n * self.flips) / (1 - 2 * self.flips)
        total = sum(map(oracles.randomize, x, uniforms, [law.g] * n))
        if law.sampler is not None:
            total += int(self.noise(b, n)[arm])
        if law.tau is None:
            return total / law.g
        z, failed = oracles.analyze(total, n, law.g, law.tau)
        self.failures[b] += failed
        return z

    def log_moments(self, j):
        """psi(j): the log moments of the noise of an arm's first j phases, by the probabilities of the noise."""
        rates = np.asarray(self.bound.rates, float)
        if j == 0:
            return np.zeros(len(rates))
        g, width = float(self.bound.protocol.steps[j - 1]), self.bound.protocol.noise.width(j - 1)
        return self.log_moments(j - 1) + [oracles.log_moment(width, r / g) if width else 0.0 for r in rates]

    def bits(self, n):
        law = self.law(n)
        if self.flips is not None:
            return 1
        if law.tau is None:
            return math.ceil(math.log2(law.g + 1)) if isinstance(self.sums, A.ThompsonArms) else 32
        m = n * law.g + 2 * law.tau + 1
        if self.title == "Shuffle-DP-SE":
            return relaxed_secagg(self.epsilon / 2, 1 / (2 * HORIZON), n, m).bits
        return math.ceil(math.log2(m))


# Who is eliminated.


def epochs(epsilon):
    """Sizes and half of the thresholds of Sajed & Sheffet (2019)."""

    def logs(e, n):
        return math.log(8 * n * e**2 / P), math.log(4 * n * e**2 / P)

    def size(e, n):
        sampling, private = logs(e, n)
        return int(max(32 * sampling * 4**e, 8 * private * 2**e / epsilon)) + 1

    def half_threshold(e, n):
        sampling, private = logs(e, n)
        return math.sqrt(sampling / (2 * size(e, n))) + private / (epsilon * size(e, n))

    return size, half_threshold


def truncated(algo, server):
    """Half the widths in units of 2 M, at levels that are the best ones."""

    def noise(log):
        return 0.0 if math.isinf(server.epsilon) else (math.sqrt(2 * log) + log) / server.epsilon

    def radius(b, n):
        about = algo.moment, algo.order, algo.corruption, noise
        how = dict(flips=server.flips, after=getattr(server.sums, "corrupted", "") == "messages")
        of = lambda level, n: oracles.truncation_radius(level, b, n, 2**b, P, *about, **how)  # noqa: E731
        level = float(server.level[b - 1])
        if algo.level is None and level > 0.26 * algo.moment ** (1 / algo.order):  # not the least of all
            assert of(level, 4) <= 1.0001 * oracles.best_truncation(lambda m: of(m, 4))
        return of(level, n) / (2 * level)

    return radius


def eliminating(algo, server):
    """Sizes of batches and radii."""
    growth = getattr(server.sums, "growth", 2)

    def size(b, n):
        return growth**b

    def lemma(b, n):
        if getattr(algo, "radius", "") == "exact":  # test_radius.py has these
            return float(server.bound.radius[b - 1, n])
        law = server.law(size(b, n))
        return lemma_2(b, size(b, n), n, law.s, law.h)

    if server.title == "DP-SE":
        rules = epochs(server.epsilon)
        for table, rule in zip((server.bound.users, server.bound.radius), rules):
            np.testing.assert_allclose(table[:2, 1:], [[rule(e, n) for n in range(1, 5)] for e in (1, 2)], rtol=1e-6)
        return rules
    if server.level is not None:
        return size, truncated(algo, server)
    if server.flips is not None:
        return size, lambda b, n: math.sqrt(math.log(4 * n * b**2 / P) / (2 * 2**b)) / (1 - 2 * server.flips)
    return size, lemma


# Which arm is next.


def adac(bound, server, asked, sums):
    return [s / 2**j + bound.radius[j - 1] if j else np.inf for j, s in zip(asked, sums)]


def optimal(bound, server, asked, sums):
    """The indices of KL-UCB and IMED."""
    users, rates = [int(bound.users[:j].sum()) for j in asked], np.asarray(bound.rates, float)
    found = [(s, n, server.log_moments(j), rates) for s, n, j in zip(sums, users, asked)]
    if bound.imed:
        best = min(max([0, *(s / n for s, n in zip(sums, users) if n)]), oracles.TOP)
        index = [-max(oracles.evidence(*one, best), 0) - math.log(one[1] or 1) for one in found]
    else:
        index = [oracles.kl_index(*one, sum(users)) for one in found]
    return [one if n else np.inf for one, n in zip(index, users)]


def sampled(bound, server, asked, sums):
    """The samples of Thompson sampling. Of arms without users, the one with the least draw is next."""
    if not sum(asked):
        return [np.inf] * len(asked)
    users, noise = np.cumsum(bound.users) + 1, np.cumsum(bound.protocol.stds()[: len(bound.users)] ** 2)
    std = np.sqrt(users / 4 + noise) / users
    np.testing.assert_allclose(bound.radius[: bound.times], std[: bound.times], rtol=1e-5)  # few samples decide
    z = np.asarray(jax.random.normal(random.stream(server.names[sum(asked) - 1], "samples"), (len(asked),)))
    given = zip(asked, sums, z)
    return [s / users[j - 1] + std[j - 1] * one if j else 1e9 - 1e6 * one for j, s, one in given]


def samples(bound, server, asked, sums):
    """Noisy sums, drawn anew for all arms after every phase, over one more user."""
    if min(asked) == 0:
        return [0.0 if j else np.inf for j in asked]
    noise = np.round(np.asarray(bound.std)[np.array(asked) - 1] * NORMAL(server.names[sum(asked) - 1]))
    g = int(bound.steps)
    server.shown[sum(asked)] = [(round(s * g) + z) / g for s, z in zip(sums, noise)]
    return [y / (bound.sizes[:j].sum() + 1) for j, y in zip(asked, server.shown[sum(asked)])]


NORMAL = jax.jit(lambda name: tails.normal(name, (4,)))
INDEX = {A.AdaCUCB: adac, A.PhasedKLUCB: optimal, A.PhasedIMED: optimal, A.PhasedThompson: sampled}
INDEX[A.ThompsonArms] = samples


def rule_of(algo, server, lots, turns):
    bound, table = server.bound, getattr(server.bound, "sizes", getattr(server.bound, "users", None))
    size = lambda j: int(table[j - 1])  # noqa: E731
    if isinstance(algo, A.SequentialHalving):
        return oracles.halving(server.k, algo.budget or HORIZON)
    if isinstance(algo, A.TopTwo):
        rates = np.asarray(bound.rates, float)
        return oracles.top_two(size, server.log_moments, rates, float(bound.threshold), lots)
    if type(algo) in INDEX:
        index = functools.partial(INDEX[type(algo)], bound, server)
        return oracles.one_arm_at_a_time(index, size, lots, forgets=isinstance(algo, A.AdaCUCB))
    return oracles.elimination(turns, *eliminating(algo, server), server.entered)


RUNS: list[Any] = [  # an algorithm, and perhaps its environment and the users of a block
    (algorithm("DP-SE", 2.0), CUT),
    (algorithm("Dist-RDP-SE"),),
    (A.TruncatedSE(A.CDPSE(2.0), **HEAVY), PARETO),
    (A.TruncatedSE(A.RRSE(6.0, corrupted="messages"), **HEAVY, corruption=0.001), LIES),
    (A.AdaCUCB(A.DistDPSE(1.0, radius="exact")),),
    (A.PhasedKLUCB(PURE),),
    (A.PhasedThompson(PURE, first=20),),
    (A.ThompsonArms(1.0, first=30),),
    (A.TopTwo(PURE),),
    (A.SequentialHalving(PURE, budget=4_000),),
    (algorithm("Dist-DP-SE", 60.0, unit=fb.privacy.Users(3, per_batch=1, apart=2)), BACK),
]
DEFAULT = len(RUNS)
RUNS += [
    *((algorithm("SE", growth=growth),) for growth in (2, 4)),
    (algorithm("Dist-DP-SE", 8.0, unit=fb.privacy.Users(4, per_batch=1)), BACK),
    *((algorithm(name, 2.0 if name == "LDP-SE" else 1.0),) for name in RINGS if name != "Dist-RDP-SE"),
    (algorithm("Dist-DP-SE", 2.0, growth=4), ARMS, 2**16),
    (algorithm("Dist-RDP-SE", radius="exact"),),
    (A.TruncatedSE(A.RRSE(6.0), **HEAVY, corruption=0.001), LIES),
    (A.TruncatedSE(A.SE(), **HEAVY, order=1.8), PARETO),
    (A.TruncatedSE(A.CDPSE(2.0), **HEAVY, level=3.0), PARETO),
    *((one,) for one in (A.RRSE(2.0), A.AdaCUCB(), A.PhasedIMED(PURE), A.PhasedIMED(), A.TopTwo())),
    *((A.ThompsonArms(0.5, first=100, growth=2, inflate="factor"),), (A.ThompsonArms(1e5),), (A.SequentialHalving(),)),
]


WHOLE = [(*row, *(ARMS, BLOCK)[len(row) - 1 :]) for row in RUNS]


@pytest.mark.parametrize(("algo", "env", "block"), deep(WHOLE, keep=range(DEFAULT)))
def test_user_by_user(key, algo, env, block):
    """Regret of every user, arms and releases after every batch, counters at every user, and what is recommended."""
    runner, found, counters, states = play(algo, key, env, block)
    server, bound = Server(algo, runner, key), runner.algo
    means = jax.jit(env.means)(env.init(key)).tolist()
    turns = jax.random.permutation(random.stream(key, "turns"), server.k).tolist()
    lots = np.asarray(getattr(INIT(runner, key)[1][1], "lot", range(server.k)))
    robin = server.title == "DP-SE"
    regret, batches = oracles.play(
        means, HORIZON, rule_of(algo, server, lots, turns), server.add_up, turns, round_robin=robin
    )
    whole = np.cumsum(regret)
    np.testing.assert_allclose(found, whole, atol=1.0 if robin else 2e-3 if server.level is not None else 1e-3)
    one_arm = type(algo) in INDEX or isinstance(algo, A.TopTwo)
    totals, curves = {}, {name: np.zeros(HORIZON, int) for name in counters}
    for k, batch in enumerate(batches):
        shown, active = bound.view(states[k])
        assert np.flatnonzero(active).tolist() == sorted(batch.arms if one_arm else batch.left)
        expected = [batch.sums.get(a, 0.0) for a in range(server.k)]
        if isinstance(algo, A.ThompsonArms):
            expected = server.shown.get(k + 1, np.zeros(server.k))
        rtol, atol = (1e-4, 1e-3) if server.level is not None or server.flips else (1e-5, 1e-5 * one_arm)
        np.testing.assert_allclose(shown, expected, rtol=rtol, atol=atol)
        users = batch.users * len(batch.arms)
        for name, more in {
            "rounds": 1,
            "floats": users,
            "bits": users * server.bits(batch.users),
            "decodings": len(batch.arms),
            "decoding failures": server.failures[k + 1],
            "eliminations": len(batch.arms) - len(batch.left),
            LEFT_OUT: users - sum(server.entered[k + 1, a] for a in batch.arms),
        }.items():
            totals[name] = totals.get(name, 0) + more
        for name, curve in curves.items():
            curve[batch.end - 1 :] = totals[name]
    for name, curve in curves.items():
        np.testing.assert_allclose(counters[name], curve, rtol=1e-6, err_msg=name)  # Shuffle's bits exceed float32
    for left in states[len(batches) :]:  # the last batch does not fit: nothing is released, nothing is learned
        jax.tree.map(np.testing.assert_array_equal, left, states[len(batches) - 1])
    assert 0 < totals[LEFT_OUT] < HORIZON or env is not BACK
    assert len({arm for batch in batches for arm in batch.arms}) == server.k
    assert one_arm or totals["eliminations"] > 0
    if hasattr(bound, "recommend"):
        best, stopped = map(int, jax.jit(bound.recommend)(states[-1]))
        assert ([best], stopped) == (batches[-1].left, batches[-1].end)
        assert stopped < HORIZON
    if robin:  # regret is exact whenever all arms have had as many users, and linear in between
        ends = [0, *(batch.end for batch in batches), HORIZON]
        for (start, end), arms in zip(itertools.pairwise(ends), [*(one.arms for one in batches), batches[-1].left]):
            even = np.arange(start, end, len(arms))[1:] - 1
            np.testing.assert_allclose(found[even], whole[even], atol=1e-3)
            assert np.abs(np.diff(found[start:end], 2)).max(initial=0) < 1e-3
