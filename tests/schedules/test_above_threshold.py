"""What the sparse vector test of `PrivateLogDet` tells about one user: exact laws of all transcripts, and its draws."""

import math

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import stepped
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.audits.schedules import QUERIES, above_threshold
from fedbandit_jax.engine.runners import Synchronous
from fedbandit_jax.schedules import adaptive

S = fb.schedules
MOST = 4  # the most that one user adds in the exact laws, where the package has 64
RNG = np.random.default_rng(3)


def first_asks(sums, thresholds, on_threshold, on_sums):
    """P(the first sum + noise >= threshold + noise is number k), and P(none is); noises are discrete Laplace."""
    reach = math.ceil(40 * on_threshold) + 100
    z = np.arange(-reach, reach + 1)
    alive, found = np.exp(-abs(z) / on_threshold), []
    alive /= alive.sum()
    for q, t in zip(sums, thresholds):
        x, r = t + z - q, math.exp(-1 / on_sums)
        above = np.where(x >= 1, r ** np.maximum(x, 1) / (1 + r), 1 - r ** np.maximum(1 - x, 1) / (1 + r))
        found.append((alive * above).sum())
        alive = alive * (1 - above)
    return np.array([*found, alive.sum()])


def loss(pair, on_threshold, on_sums):
    """The largest |ln| ratio of the probabilities of a transcript: exactly the epsilon of these sums and thresholds."""
    sums, others, thresholds = pair
    laws = [first_asks(q, thresholds, on_threshold, on_sums) for q in (sums, others)]
    return float(np.abs(np.log(laws[0] / laws[1])).max())


def neighbours():
    """Running sums of up to eight users, one of whom is replaced, and thresholds below, among and above the sums."""
    n = RNG.integers(1, 9)
    terms = RNG.integers(0, MOST + 1, n)
    other = terms.copy()
    other[RNG.integers(n)] = RNG.integers(0, MOST + 1)
    return terms.cumsum(), other.cumsum(), RNG.integers(-20, 50, n)


PAIRS = [neighbours() for _ in range(400)]
FIRST = [(np.zeros(8), np.full(8, MOST), np.full(8, t)) for t in range(-12, 13)]  # the first user, no others


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_both_noises_at_the_full_epsilon_are_epsilon_dp(epsilon):
    """And no less: whoever divides epsilon between the two, as for sums that move at will, adds noise for nothing."""
    scale = MOST / epsilon
    assert max(loss(pair, scale, scale) for pair in PAIRS) <= epsilon * (1 + 1e-9)
    assert max(loss(pair, scale, scale) for pair in FIRST) >= 0.999 * epsilon
    share = 1 / (1 + 2 ** (2 / 3))
    split = max(loss(pair, scale / share, 2 * scale / (1 - share)) for pair in PAIRS[:100] + FIRST)
    assert split < 0.4 * epsilon


@pytest.mark.parametrize("short", [(0.9, 1.0), (1.0, 0.9)])
def test_less_of_either_noise_is_not(short):
    assert max(loss(pair, *(MOST * part for part in short)) for pair in PAIRS + FIRST) > 1.1


@jax.jit
def asked(bound, sums, key):
    """The first round in which each silo asks (n if none), all silos with the same sums."""
    keys = jax.random.split(key, len(sums) + 1)
    memory = bound.start(keys[0], jnp.float32(1))
    rows = jax.lax.map(lambda given: bound.requests(given[0], 0, memory, given[1], 1), (keys[1:], sums))
    return jnp.argmax(jnp.concatenate([rows, jnp.ones((1, bound.n_agents), bool)]), 0)


def test_the_law_of_requests_is_the_exact_one(key):
    """Of 30,000 silos, at alpha = 1e-4; a tenth less noise, shared noise, or that of another round is rejected."""
    n, epsilon, sums = 30_000, 4.0, [0, 64, 64, 100]
    bound = S.PrivateLogDet(1.0, share=0.25).bind(S.Setting(n, 3, 10, 1.0, 1.0, 4 * epsilon))
    threshold = math.ceil(64 / math.log(2))
    counts = np.bincount(asked(bound, np.array(sums), key), minlength=len(sums) + 1)

    def fits(on_threshold, on_sums):
        law = first_asks(sums, [threshold] * len(sums), on_threshold, on_sums)
        return stats.chisquare(counts, n * law / law.sum()).pvalue > 1e-4

    assert fits(64 / epsilon, 64 / epsilon)
    assert not fits(0.9 * 64 / epsilon, 64 / epsilon)
    assert not fits(64 / epsilon, 0.9 * 64 / epsilon)


def test_the_audit_is_of_sums_that_lose_all():
    """In law, the two data sets of the shipped case show 0.992 of its epsilon."""
    case = above_threshold(S.PrivateLogDet(1e-3, share=0.5), epsilon=2.0, name="tests alone")
    assert case.epsilon == 1
    assert 0.99 < loss((case.data, case.neighbour, np.ones(QUERIES + 1)), 64, 64) <= 1


def test_no_sum_saturates():
    """All silos ask after 2^23 rounds, in which 64 a round make 2^29, where the loop caps sums; not a round before."""
    assert adaptive.LONGEST * adaptive.UNITS == 2**29
    bound = S.PrivateLogDet(1e20, share=0.5).bind(S.Setting(3, 3, 10**9, 1.0, 1.0, 100.0))
    memory = jax.jit(bound.start)(jax.random.key(0), jnp.float32(1))
    ask = jax.jit(lambda t: bound.requests(jax.random.key(1), 0, memory, jnp.zeros(3, jnp.int32), t))
    assert [ask(t).tolist() for t in (2**23 - 1, 2**23, 2**23 + 1)] == [[False] * 3, [True] * 3, [True] * 3]


def test_what_one_user_adds():
    """At most 64 units of ln(1 + 1 / lambda_min(V)), whatever float32 makes of V; rounded up: little is not nothing."""
    bound = S.PrivateLogDet().bind(S.Setting(4, 3, 1000, 0.5, 1.5, 2.0))
    memory = jax.jit(bound.start)(jax.random.key(0), 10.0)
    assert float(memory.cap) == pytest.approx(math.log(1.1), rel=1e-5)
    leverage = np.array([0.1, 0.05, 1e-9, 0.0, 0.2, np.inf, np.nan], np.float32)
    assert jax.jit(bound.count)(memory, leverage).tolist() == [64, 33, 1, 0, 64, 64, 64]


def test_one_user_moves_a_running_sum(key):
    """In a run: from her round on, by the same number of units, at her silo; all other sums stay as they are."""
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=S.PrivateLogDet(1e6))
    script, contexts = ex.SCRIPT, np.array(ex.SCRIPT.contexts)
    contexts[20, 1] /= 10
    other = fb.envs.script(contexts, script.answers, script.means)

    def sums(state, metrics):
        return state.epoch.counted, state.epoch.memory.cap

    bound = algo.bind(script.spec, ex.T)
    runners = (Synchronous(env=env, algo=bound, horizon=ex.T) for env in (script, other))
    (one, cap), (two, _) = (stepped(sums, runner, np.arange(ex.T), key)[1] for runner in runners)
    assert (cap == cap[0]).all()
    moved = np.asarray(one) - np.asarray(two)
    step = moved[20, 1]
    assert 0 < step <= 64
    assert (moved[20:, 1] == step).all()
    assert (moved[:20, 1] == 0).all()
    assert (moved[:, [0, 2, 3]] == 0).all()


@pytest.mark.slow
def test_tests_end_with_the_last_synchronisation(key):
    """Who has used up max_syncs is silent: a test that goes on after its first answer would tell more."""
    env = fb.envs.gap(3, 5, 4)
    algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(50.0, 0.1), schedule=S.PrivateLogDet(1e-3, max_syncs=3))
    runner = Synchronous(env=env, algo=algo.bind(env.spec, 30), horizon=30)
    _, (asked, rounds) = stepped(lambda state, now: (state.asked, now.report.rounds), runner, np.arange(30), key)
    assert rounds.sum() == 3
    np.testing.assert_array_equal(asked.any(1), rounds == 1)
