"""Every linear algorithm with a server equals its printed pseudo-code, round by round, on the same draws."""

import dataclasses
import functools

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import AUTHORS, AuthorsUCB, by_lot, deep
from oracles import linear as oracles

import fedbandit_jax as fb
from fedbandit_jax.audits.linear import Opinion
from fedbandit_jax.core import random, ridge
from fedbandit_jax.core.ridge import with_spectrum
from fedbandit_jax.engine.runners import Synchronous
from fedbandit_jax.privacy.packing import packed_size, unpack
from fedbandit_jax.privacy.samplers import discrete_laplace

S, EVERY, D = fb.schedules, 6, ex.D
NOISE = jax.jit(discrete_laplace, static_argnums=2)
START = jax.jit(lambda schedule, key, floor: schedule.start(key, floor))
AT = jax.jit(lambda key, t: jax.random.fold_in(random.stream(key, "syncs"), t))


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


class Asks:
    """A schedule of the oracle, with the noise that the run draws."""

    def __init__(self, bound, key):
        self.schedule, self.batch, self.shift = bound.schedule, bound.batch, float(bound.shift or 0)
        self.key, self.units = key, 0

    def start(self, key, v):
        inverse = np.linalg.inv(v)
        norm = min(np.abs(inverse).sum(1).max(), np.linalg.norm(inverse))
        self.memory = START(self.schedule, random.stream(key, "epoch"), np.float32(1 / (1.001 * norm)))
        self.units = 0

    def __call__(self, t, v, own, x, since):
        schedule, d = self.schedule, len(v)
        if schedule is None:
            return (t + 1) % self.batch == 0
        if schedule.reads == "nothing":
            return bool(schedule.requests(None, t, (), None, since))
        if schedule.reads == "log_det":
            gained = np.linalg.slogdet(v + own[..., :d] + self.shift * np.eye(d))[1] - np.linalg.slogdet(v)[1]
            return gained >= float(schedule.threshold) / since
        if since == 1:
            self.start(AT(self.key, np.int32(t - 1)) if t else random.stream(self.key, "learner"), v)
        cap = float(self.memory.cap)
        leverage = (x * np.linalg.solve(v, x.T).T).sum(1)
        self.units = self.units + np.ceil(64 * np.minimum(np.log1p(leverage) / cap, 1))
        requests = random.stream(AT(self.key, np.int32(t)), "requests")
        noise = NOISE(requests, 64 / schedule.epsilon * (1 + 1e-6), (len(x),))
        return self.units + noise >= np.ceil(64 * float(schedule.threshold) / since / cap) + self.memory.shift


def by_policy(policy, bound, key, explored):
    """The arm of agent i in round t by a policy, with the draws of the library."""

    def draws(t, i):
        return jax.random.split(jax.random.fold_in(random.stream(key, "choices"), t), ex.M)[i]

    def ucb(t, i, contexts, v, u):
        width = bound.policy.width
        if hasattr(width, "log_det"):
            width = width._replace(log_det=np.linalg.slogdet(v)[1])
        return oracles.argmax_ucb(contexts, v, u, float(width(t)))

    def forgetting(t, i, contexts, v, u):
        """Russac et al. (2019), Algorithm 1: the width of the weighted number of rounds, as the docstring says."""
        m, past = ex.M, t // bound.batch
        rounds = bound.batch * sum(policy.memory.decay**j for j in range(past))
        log_term = 2 * np.log(bound.n_syncs / 0.01) + D * np.log1p(m * np.ceil(rounds) / D)
        return oracles.argmax_ucb(contexts, v, u, policy.policy.exploration_scale * (1 + 0.5 * np.sqrt(log_term)))

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
    rules = {
        fb.algos.Forgetting: forgetting,
        fb.algos.EpsilonGreedy: epsilon_greedy,
        fb.algos.Thompson: thompson,
        fb.algos.Greedy: greedy,
    }
    return rules.get(type(policy), ucb)


PRINTED = fb.privacy.Mechanism(ex.LITTLE, release="tree", trust="silo_local_matrix", std="dubey2020")
ADAPTIVE, GEOMETRIC = fb.algos.Federated(schedule=S.LogDet(20.0)), S.Geometric(1.5, first=1)
PRIVATE, THOMPSON = ADAPTIVE.replace(privacy=ex.LITTLE), fb.algos.Federated(policy=ex.THOMPSON, schedule=GEOMETRIC)
MORE = {
    "D-LinUCB": fb.algos.Federated(
        policy=fb.algos.Forgetting(policy=fb.algos.UCB(exploration_scale=0.4), memory=fb.privacy.Discounted(0.8)),
        schedule=4,
    ),
    "every four": fb.algos.fed_ucb(schedule=S.Every(4)),  # log det grows within a batch
    "zc24": fb.algos.fed_ucb(PRINTED, schedule=S.LogDet(5.0)).replace(spectral="theory"),
    "at most three": fb.algos.fed_ucb(ex.LITTLE, schedule=S.PrivateLogDet(2.0, max_syncs=3)),
    "FedLinUCB, adaptive": ADAPTIVE.replace(learns_in_batch=True),
    "lazy FedLinUCB, adaptive": ADAPTIVE,
    "Private-FedLinUCB, geometric": PRIVATE.replace(schedule=GEOMETRIC),
    "Private-FedLinUCB, private": PRIVATE.replace(
        schedule=S.PrivateLogDet(20.0, share=0.01), trust="silo_local_matrix"
    ),
    "Thompson, geometric": THOMPSON.replace(privacy=ex.LITTLE),
    "Thompson without privacy, geometric": THOMPSON,
    "opinions": THOMPSON.replace(privacy=fb.privacy.Mechanism(ex.LITTLE, statistic=Opinion(gram_scale=0.5))),
    "a range": THOMPSON.replace(privacy=fb.privacy.Mechanism(ex.LITTLE, statistic=fb.privacy.Linear(low=-1, high=3))),
}
PLAIN = {row.plain for row in ex.EXAMPLES.values()}  # which the contract compares with rows that have an oracle here
ROWS = [row for row in ex.EXAMPLES.values() if row.oracle == ex.SERVER]
KEPT = [i for i, row in enumerate(ROWS) if row.name not in PLAIN and not row.slow]


@pytest.mark.parametrize("name", deep([*(row.name for row in ROWS), *MORE], keep=[*KEPT, len(ROWS), len(ROWS) + 1]))
def test_algorithms_with_a_server(name):
    """Algorithms 1 and 8 of Zhou & Chowdhury (2024), and 1 of Dubey & Pentland (2020), with any policy.

    The last batch has 4 rounds of 6, and nothing is sent after it.
    """
    (run, algo), env = ex.run_of(name, MORE), ex.EXAMPLES[name].env if name in ex.EXAMPLES else ex.SCRIPT
    bound, scheduled, explored = run.bound, run.bound.schedule is not None, np.zeros(ex.T)
    psd = getattr(bound.policy, "project", not isinstance(algo.policy, fb.algos.LogDetUCB))
    lam = float(getattr(bound.policy, "regularization", 1.0))
    if name == "AdaC-OFUL":
        lam, psd = 0.0, False
    first = float(getattr(bound.policy, "first_regularization", lam)) if scheduled else lam
    silo = oracles.Tree if "tree" in getattr(algo.privacy, "release", "tree") else oracles.Batches
    forgets = isinstance(algo.policy, fb.algos.Forgetting)  # not the sums, but the policy
    silo = functools.partial(oracles.Batches, algo.policy.memory.decay) if forgets else silo

    @jax.jit
    def drawn(key, k):
        syncs = jax.random.fold_in(random.stream(key, "syncs"), k)
        noise = bound.mechanism.trust.noise(random.stream(syncs, "release") if scheduled else syncs, packed_size(D))
        return unpack(noise, D)

    for seed in (0, 2) if algo.privacy else (0,):
        key = jax.random.fold_in(ex.KEY, seed)

        def noise(t, k, key=key):
            scale = bound.mechanism.statistic.rule.gram_scale
            return np.asarray(drawn(key, t if scheduled else k - 1), float) / np.append(np.full(D, scale), 1.0)

        def counts(x, y, k, released):
            """Logistic regression is about the estimate of its ridge, which is far above the noise."""
            ridge = (1 + 2 * np.sqrt(2 * D) * float(np.asarray(bound.stds)[max(k, 1) - 1])) * np.eye(D)
            seen = np.linalg.solve(released[:, :D] + ridge, released[:, D])
            return map(float, bound.mechanism.statistic.rule.contribution(x, y, seen))

        expected, synced, statistics, _ = oracles.scheduled(
            env, ex.T, by_policy(algo.policy, bound, key, explored), Asks(bound, key), first=first, later=lam,
            learns=algo.learns_in_batch, noise=noise if algo.privacy else None, psd=psd, silo=silo(),
            most=bound.n_syncs, **{"counts": counts} if algo.privacy else {},
        )  # fmt: skip
        state = run.state(seed)
        np.testing.assert_array_equal(np.flatnonzero(run.synced[seed]), synced)
        assert int(state.synced) == len(synced) >= 2
        np.testing.assert_allclose(run.gaps[seed], expected, atol=2e-5)
        found = state.ledger.mechanism.view if algo.privacy else state.ledger.mechanism.sums.high
        if not forgets:
            np.testing.assert_allclose(found, statistics, rtol=1e-4, atol=1e-3)
        if scheduled and bound.reads != "nothing" and name != "at most three":
            assert np.unique(np.diff([-1, *synced])).size > 1  # it adapts
        gram = oracles.project(statistics[:, :D]) if psd else statistics[:, :D]
        v, belief = lam * np.eye(D) + gram, state.belief
        if isinstance(algo.policy, fb.algos.Thompson):
            root = np.asarray(belief.root, float)
            np.testing.assert_allclose(np.linalg.inv(root @ root.T), v, rtol=2e-4, atol=1e-3)
            np.testing.assert_allclose(belief.mean, np.linalg.solve(v, statistics[:, D]), rtol=2e-4, atol=1e-3)
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
    one = state.ledger.mechanism
    large = one._replace(sums=one.sums._replace(high=one.sums.high + 2.0**17))
    state = state._replace(ledger=state.ledger._replace(mechanism=large))

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
    precision, bias, contexts = jnp.asarray(rows.T @ rows + np.float32(np.eye(3))), jnp.asarray(rows[0]), rows[3:7]
    belief, inverse = fb.linalg.GaussianBelief.solve(precision, bias), np.linalg.inv(precision)
    np.testing.assert_allclose(belief.mean, inverse @ rows[0], atol=1e-5)
    np.testing.assert_allclose(belief.std(jnp.asarray(contexts)) ** 2, np.diag(contexts @ inverse @ contexts.T), 1e-4)
