"""Every linear algorithm in batches equals its printed pseudo-code, round by round, on the same draws."""

import dataclasses

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import AUTHORS, AuthorsUCB, by_lot, deep
from oracles import linear as oracles

import fedbandit_jax as fb
from fedbandit_jax.core import random, ridge
from fedbandit_jax.core.ridge import with_spectrum
from fedbandit_jax.engine.runners import Synchronous
from fedbandit_jax.privacy.packing import packed_size, unpack

EVERY, D = 6, ex.D


def test_lin_ucb():
    """In batches of 10 rounds, after each of which sums are computed anew."""
    bound = dataclasses.replace(fb.algos.LinUCB().bind(ex.SCRIPT.spec, ex.T), batch=10)
    run, lam = ex.play(ex.SCRIPT, bound), float(bound.policy.regularization)

    def choose(t, i, contexts, v, u):
        return oracles.argmax_ucb(contexts, v, u, float(bound.policy.width(t)))

    expected, *_, sums = oracles.scheduled(
        ex.SCRIPT, ex.T, choose, lambda t, *_: False, first=lam, later=lam, learns=True
    )
    np.testing.assert_allclose(run.gaps[0], expected, atol=2e-5)
    np.testing.assert_allclose(run.state(0).sums, sums, atol=1e-4)


def by_policy(policy, bound, key, explored):
    """The arm of agent i in round t by a policy, with the draws of the library."""

    def draws(t, i):
        return jax.random.split(jax.random.fold_in(random.stream(key, "choices"), t), ex.M)[i]

    def ucb(t, i, contexts, v, u):
        return oracles.argmax_ucb(contexts, v, u, float(bound.policy.width(t)))

    known = {}

    def known_noise(t, i, contexts, w, u):
        """Given the released W itself: lambda and width anew by the rule, which test_confidence.py writes out again."""
        k, width = t // EVERY - 1, bound.policy.width
        if k < 0:
            return oracles.argmax_ucb(contexts, float(bound.policy.first_regularization) * np.eye(D), u, width(t))
        e, vectors = np.linalg.eigh(w)
        if k not in known:
            known[k] = jax.jit(bound.policy.rule)(np.float32(bound.mechanism.stds()[k]), np.float32(e))
        lam, width = known[k]
        return oracles.argmax_ucb(contexts, (vectors * (float(lam) + e.clip(0))) @ vectors.T, u, float(width(t)))

    def thompson(t, i, contexts, v, u):
        z = np.asarray(jax.random.normal(draws(t, i), (D,)), float)
        return oracles.argmax_draw(contexts, v, u, z, policy.scale)

    def greedy(t, i, contexts, v, u):
        """The ridge is that many standard deviations of the noise on W, and at least 1, which is in V."""
        more = max(1.0, policy.shrinkage * bound.mechanism.stds()[t // EVERY - 1]) - 1 if t >= EVERY else 0
        worth = contexts @ np.linalg.solve(v + more * np.eye(D), u)
        return int(worth.argmax() if u.any() else by_lot(key, t, len(worth), ex.M)[i])

    def epsilon_greedy(t, i, contexts, v, u):
        coin, other = jax.random.split(draws(t, i))
        if float(jax.random.uniform(coin)) >= policy.explore / (t + 1):
            return greedy(t, i, contexts, v, u)
        explored[t] += 1
        return int(np.argmax(jax.random.uniform(other, (len(contexts),))))

    if getattr(bound.policy, "rule", None) is not None and isinstance(policy, fb.algos.UCB):
        return known_noise
    rules = {fb.algos.UCB: ucb, fb.algos.Thompson: thompson, fb.algos.Greedy: greedy}
    return rules.get(type(policy), epsilon_greedy)


ROWS = [row.name for row in ex.EXAMPLES.values() if row.oracle == ex.BATCHES]
PLAIN = {row.plain for row in ex.EXAMPLES.values()}  # which the contract compares with rows that have an oracle here


@pytest.mark.parametrize("name", deep(ROWS, keep=[i for i, name in enumerate(ROWS) if name not in PLAIN]))
def test_algorithms_1_and_8(name):
    """Of Zhou & Chowdhury (2024), with any policy; the last batch has 4 rounds of 6, and nothing is sent after it."""
    run, algo, env = ex.played(name), ex.EXAMPLES[name].algo, ex.EXAMPLES[name].env
    bound, psd, explored = run.bound, getattr(run.bound.policy, "project", True), np.zeros(ex.T)
    lam = float(getattr(bound.policy, "regularization", 1.0))
    if name == "AdaC-OFUL":
        lam, psd = 0.0, False
    silo = oracles.Tree if "tree" in getattr(algo.privacy, "release", "tree") else oracles.Batches

    @jax.jit
    def drawn(key, k):
        syncs = jax.random.fold_in(random.stream(key, "syncs"), k - 1)
        return unpack(bound.mechanism.trust.noise(syncs, packed_size(D)), D)

    for seed in (0, 2) if algo.privacy else (0,):
        key = jax.random.fold_in(ex.KEY, seed)

        def noise(t, k, key=key):
            scale = bound.mechanism.statistic.rule.gram_scale
            return np.asarray(drawn(key, k), float) / np.append(np.full(D, scale), 1.0)

        expected, _, synced, _ = oracles.scheduled(
            env, ex.T, by_policy(algo.policy, bound, key, explored), lambda t, *_: (t + 1) % EVERY == 0, first=lam,
            later=lam, learns=algo.learns_in_batch, noise=noise if algo.privacy else None, psd=psd, silo=silo(),
        )  # fmt: skip
        np.testing.assert_allclose(run.gaps[seed], expected, atol=2e-5)
        state = run.state(seed)
        found = state.ledger.mechanism.view if algo.privacy else state.ledger.mechanism.sums.high
        np.testing.assert_allclose(found, synced, rtol=1e-4, atol=1e-3)
        gram = oracles.project(synced[:, :D]) if psd else synced[:, :D]
        v, belief = lam * np.eye(D) + gram, state.belief
        if isinstance(algo.policy, fb.algos.Thompson):
            root = np.asarray(belief.root, float)
            np.testing.assert_allclose(np.linalg.inv(root @ root.T), v, rtol=2e-4, atol=1e-3)
            np.testing.assert_allclose(belief.mean, np.linalg.solve(v, synced[:, D]), rtol=2e-4, atol=1e-3)
        elif isinstance(algo.policy, fb.algos.UCB) and lam:
            np.testing.assert_allclose(ridge.matrices(belief.posterior)[0], np.linalg.inv(v), rtol=2e-4, atol=1e-6)
    assert (explored[:10] == ex.M * 2 * explored.any()).all()  # explore = 10: always at first, and then in 10 / t
    assert explored[10:].sum() < 0.6 * 2 * ex.M * 30


def test_long_sums_do_not_lose_the_small_terms(key):
    """Compensated summation: 20,000 synchronisations of 0.01 on top of 2^17, where float32 would round each away."""
    env = fb.envs.script(np.full((1, 1, 1, 1), 0.1), np.ones((1, 1, 1)))
    bound = fb.algos.fed_lin_ucb(schedule=1).bind(env.spec, 20_000)
    runner = Synchronous(env=env, algo=bound, horizon=20_000)
    world, state = jax.jit(runner.init)(key)
    sums = state.ledger.mechanism.sums
    state = state._replace(
        ledger=state.ledger._replace(
            mechanism=state.ledger.mechanism._replace(sums=sums._replace(high=sums.high + 2.0**17))
        )
    )

    def body(carry, k):
        return runner.step(key, *carry, k)[:2], None

    (_, state), _ = jax.jit(lambda c: jax.lax.scan(body, c, np.arange(20_000)))((world, state))
    np.testing.assert_allclose(state.ledger.mechanism.sums.high - 2.0**17, [[200.0, 2000.0]], rtol=1e-3)


def test_released_constants():
    """The authors' lambda and beta, by hand, at M=100, S=400 (kappa=9), d=10, failure=0.01, R=0.5."""
    spec = fb.Spec(n_agents=100, n_arms=100, dim=10, max_norm=1.0)
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), std=AUTHORS["silo_local"])
    ucb = AuthorsUCB()
    bound = fb.algos.private_fed_lin_ucb(mechanism, policy=ucb, learns_in_batch=True).bind(spec, 10_000)
    sigma = np.sqrt(9 * (np.log(10) + 1))
    lam = np.sqrt(900) * sigma * (np.sqrt(9 + np.log(100)) + np.sqrt(10))
    np.testing.assert_allclose(bound.mechanism.trust.sum_std(), 10 * sigma, rtol=1e-5)
    np.testing.assert_allclose(bound.policy.regularization, lam, rtol=1e-5)
    beta = np.sqrt(lam * 10) + 0.5 * np.sqrt(10 * np.log(1 + 100 * 1234 / (10 * lam)) + np.log(100))
    np.testing.assert_allclose(bound.policy.width(1234), beta, rtol=1e-5)
    plain = fb.algos.fed_lin_ucb(policy=ucb).bind(spec, 10_000)
    np.testing.assert_allclose(plain.policy.regularization, 10.0, rtol=1e-6)
    # lambda of the authors' vector sum knows nothing of the noise in the bits: 4,259 in Fig. 2(b)
    spec = dataclasses.replace(spec, rewards_in_unit=True)
    std = AUTHORS["shuffle_vector_sum"]
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(0.2, 0.1), trust="shuffle_vector_sum", std=std)
    bound = fb.algos.private_fed_lin_ucb(mechanism, policy=ucb).bind(spec, 10_000)
    assert bound.policy.regularization == pytest.approx(4259, rel=1e-3)


def test_projections_and_beliefs_by_numpy():
    """The nearest positive semidefinite matrix, and N(P^-1 b, P^-1)."""
    rng = np.random.default_rng(0)
    matrix, rows = rng.standard_normal((6, 6)), rng.standard_normal((9, 3)).astype(np.float32)
    matrix = np.float32(matrix + matrix.T)
    values, vectors = np.linalg.eigh(matrix)
    nearest = (vectors * values.clip(0)) @ vectors.T
    np.testing.assert_allclose(with_spectrum(values.clip(0), vectors), nearest, atol=1e-5)
    np.testing.assert_allclose(fb.linalg.project(matrix), nearest, atol=1e-5)
    precision, bias, contexts = (
        jnp.asarray(rows.T @ rows + np.eye(3, dtype=np.float32)),
        jnp.asarray(rows[0]),
        rows[3:7],
    )
    belief, inverse = fb.linalg.GaussianBelief.solve(precision, bias), np.linalg.inv(precision)
    np.testing.assert_allclose(belief.mean, inverse @ rows[0], atol=1e-5)
    np.testing.assert_allclose(belief.std(jnp.asarray(contexts)) ** 2, np.diag(contexts @ inverse @ contexts.T), 1e-4)


@fb.pytree
class Batches(fb.Policy):
    """Believes the last release, what the last batch added to it, and how many there were."""

    def start(self, dim):
        return jnp.zeros(dim), jnp.zeros(dim), jnp.int32(0)

    def update(self, k, belief, released):
        return released.bias, released.bias - belief[0], belief[2] + 1

    def index(self, key, t, belief, contexts):
        return contexts[:, 0]


@pytest.mark.parametrize(("schedule", "total", "last"), [(3, 9, 3), (fb.schedules.Geometric(2.0, first=2), 8, 4)])
def test_a_policy_reads_what_it_believed(schedule, total, last):
    """What a batch added is the difference of two releases; rows of 1 / 2 of two silos add 1 a round."""
    env = fb.envs.script(np.full((11, 2, 1, 1), 0.5), np.ones((11, 2, 1)))
    run = ex.simulate(env, fb.algos.Federated(policy=Batches(), schedule=schedule), horizon=11, seeds=1)
    found = [run.records[f"state.belief[{i}]"].item() for i in range(3)]
    assert found == [total, last, 3]
