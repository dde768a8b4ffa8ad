"""Every linear algorithm equals its printed pseudo-code, round by round, on the same draws."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from oracles import linear as oracles

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.batches import BatchRecord
from fedbandit_jax.core import random, ridge
from fedbandit_jax.core.ridge import with_spectrum
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.privacy.packing import packed_size, unpack

BUDGET = fb.privacy.Budget(20.0, 0.1)  # little enough noise that V stays definite with a small lambda
SHIFT_ONE = dict(first_regularization=np.float32(1.0), regularization=np.float32(1.0))


def run(env, algo, horizon, key, *, policy=None, **changes):
    """Regret of every round, the bound algorithm, its final state, and the noise of release k."""
    bound = algo.bind(env.spec, horizon)
    bound = dataclasses.replace(bound, policy=dataclasses.replace(bound.policy, **(policy or {})), **changes)
    clock = RoundClock(env=env, algo=bound, horizon=horizon)
    world, state = jax.jit(clock.init)(key)
    regret = []
    step = jax.jit(clock.step)
    for k in range(clock.n_steps):
        world, state, metrics = step(key, world, state, k)
        regret.extend(np.asarray(metrics.gap))

    def noise(k):
        syncs = jax.random.fold_in(random.stream(key, "syncs"), k - 1)
        draw = bound.mechanism.trust.noise(syncs, packed_size(env.spec.dim))
        return np.asarray(unpack(draw, env.spec.dim), float)

    return np.array(regret[:horizon]), bound, state, noise


@pytest.mark.parametrize("horizon", [60, 57])
def test_lin_ucb(script, key, horizon):
    regret, bound, state, _ = run(script, fb.algos.LinUCB(), horizon, key, batch=20)
    lam, width = float(bound.policy.regularization), bound.policy.width
    expected, v, b = oracles.lin_ucb(script, horizon, lam, lambda t: float(width(t)))
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    if horizon % 20 == 0:
        np.testing.assert_allclose(state.sums[..., :-1], v - lam * np.eye(4), atol=1e-4)
        np.testing.assert_allclose(state.sums[..., -1], b, atol=1e-4)


SIZES = (60, 5), (58, 5), (60, 1), (3, 5)


@pytest.mark.parametrize(
    ("horizon", "batch", "learns"),
    deep([(*size, learns) for size in SIZES for learns in (True, False)], keep={1, 2, 4, 7}),
)
def test_fed_lin_ucb(script, key, horizon, batch, learns):
    algo = fb.algos.fed_lin_ucb(schedule=batch, learns_in_batch=learns)
    regret, bound, state, _ = run(script, algo, horizon, key)
    expected, synced = oracles.fed_lin_ucb(
        script, horizon, batch, float(bound.policy.regularization), lambda t: float(bound.policy.width(t)),
        learns=learns,
    )  # fmt: skip
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    if horizon % batch == 0:
        np.testing.assert_allclose(state.mechanism.sums.high, synced, atol=2e-4)


@pytest.mark.parametrize(  # by default every pair of values is met once
    ("learns", "release", "fixed"),
    deep(itertools.product([True, False], ["tree", "prefix_tree"], [False, True]), keep={3}),
)
def test_private_fed_lin_ucb(script, key, learns, release, fixed):
    if fixed:
        once = np.broadcast_to(script.contexts[0], script.contexts.shape)
        script = fb.envs.script(
            once, script.answers, np.broadcast_to(script.means[0], script.means.shape), fixed_contexts=True
        )
    mechanism = fb.privacy.Mechanism(BUDGET, release=release)
    algo = fb.algos.private_fed_lin_ucb(mechanism, schedule=5, learns_in_batch=learns)
    # The horizon's last, incomplete batch is not synchronised: state is compared after the one before it.
    for horizon in (58, 55):
        regret, bound, state, noise = run(script, algo, horizon, key)
        lam, width = float(bound.policy.regularization), bound.policy.width
        expected, synced = oracles.fed_lin_ucb(
            script, horizon, 5, lam, lambda t, width=width: float(width(t)), learns=learns, noise=noise,
            prefix=release == "prefix_tree",
        )  # fmt: skip
        assert bound.mechanism.trust.sum_std() > 0
        np.testing.assert_allclose(regret, expected, atol=2e-5)
        inverse = np.linalg.inv(lam * np.eye(4) + synced[:, :4])
        posterior = state.belief.posterior
        np.testing.assert_allclose(ridge.matrices(posterior)[0], inverse, rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(posterior.theta[..., 0], inverse @ synced[:, 4], rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("learns", deep([True, False], keep={1}))
def test_projected_regularizer(script, key, learns):
    """Noise that a small lambda could not bear: the projected run stays definite and equals the oracle."""
    budget = fb.privacy.Budget(2.0, 0.1)
    algo = fb.algos.private_fed_lin_ucb(budget).replace(schedule=5, learns_in_batch=learns, regularizer="project")
    regret, bound, state, noise = run(script, algo, 55, key, policy=SHIFT_ONE)
    expected, _ = oracles.fed_lin_ucb(
        script, 55, 5, 1.0, lambda t: float(bound.policy.width(t)), learns=learns, noise=noise, psd=True
    )
    assert state.status == 0
    shifted = run(script, algo.replace(regularizer="shift"), 55, key, policy=SHIFT_ONE)[2]
    assert shifted.status != 0
    np.testing.assert_allclose(regret, expected, atol=2e-5)


def draws_of(script, key):
    """z of agent i in round t, as `GaussianBelief.sample` draws it."""
    m, d = script.spec.n_agents, script.spec.dim

    def z(t, i):
        round_ = jax.random.fold_in(random.stream(key, "choices"), t)
        return np.asarray(jax.random.normal(jax.random.split(round_, m)[i], (d,)), float)

    return z


BUDGETS = None, BUDGET, fb.privacy.Budget(0.5, 0.1)


@pytest.mark.parametrize(
    ("horizon", "release", "budget"),
    deep([(*how, budget) for how in ((58, "tree"), (55, "prefix_tree")) for budget in BUDGETS], keep={4}),
)
def test_thompson(script, key, horizon, release, budget):
    """Algorithm 8 with a Thompson policy, without noise, with little, and with so much that projection matters."""
    privacy = None if budget is None else fb.privacy.Mechanism(budget, release=release)
    policy = fb.algos.Thompson(regularization=0.7, scale=0.4)
    algo = fb.algos.Federated(policy=policy, schedule=5, privacy=privacy)
    regret, _, state, noise = run(script, algo, horizon, key)
    z = draws_of(script, key)
    expected, synced = oracles.federated(
        script, horizon, 5, 0.7, lambda t, i, contexts, v, u: oracles.argmax_draw(contexts, v, u, z(t, i), 0.4),
        noise=None if budget is None else noise, prefix=release == "prefix_tree", psd=True,
    )  # fmt: skip
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    v = 0.7 * np.eye(4) + oracles.project(synced[:, :4])
    root = np.asarray(state.belief.root, float)
    np.testing.assert_allclose(np.linalg.inv(root @ root.T), v, rtol=2e-4, atol=1e-3)
    np.testing.assert_allclose(state.belief.mean, np.linalg.solve(v, synced[:, 4]), rtol=2e-4, atol=1e-3)
    assert state.status == 0
    if budget is not None and budget.epsilon == 0.5:
        assert np.linalg.eigvalsh(synced[:, :4])[0] < -0.7  # without the projection there would be no estimate


@pytest.mark.parametrize("shrinkage", deep([0.0, 3.0], keep={1}))
def test_greedy(script, key, shrinkage):
    """Algorithm 8 with a greedy policy: the ridge is that many standard deviations of the noise on W, at least 0.7."""
    policy = fb.algos.Greedy(shrinkage=shrinkage, regularization=0.7)
    mechanism = fb.privacy.Mechanism(BUDGET, statistic=fb.privacy.Linear(gram_scale=0.5))
    regret, bound, state, noise = run(script, fb.algos.Federated(policy=policy, schedule=5, privacy=mechanism), 55, key)
    scaled = np.append(np.full(4, 2.0), 1.0)  # of noise on the packed form, where x x' is halved
    ridges = np.append(0.7, np.maximum(0.7, shrinkage * bound.mechanism.stds()))

    def greedy(t, i, contexts, v, u):
        more = ridges[t // 5] - 0.7
        return int(np.argmax(contexts @ np.linalg.solve(v + more * np.eye(4), u)))

    expected, synced = oracles.federated(script, 55, 5, 0.7, greedy, noise=lambda k: noise(k) * scaled, psd=True)
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    v = ridges[-1] * np.eye(4) + oracles.project(synced[:, :4])
    theta = np.linalg.solve(v, synced[:, 4])
    np.testing.assert_allclose(state.belief.posterior.theta[:, 0], theta, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("explore", deep([10.0, 0.0], keep={0}))
def test_epsilon_greedy(script, key, explore):
    """Algorithm 8 with random arms in all of the first 10 rounds, and then in 10 / t of them."""
    policy, mechanism = fb.algos.EpsilonGreedy(explore=explore, shrinkage=0.3), fb.privacy.Mechanism(BUDGET)
    algo = fb.algos.Federated(policy=policy, schedule=5, privacy=mechanism)
    regret, bound, state, noise = run(script, algo, 55, key)
    ridges, m, explored = np.maximum(1, 0.3 * bound.mechanism.stds()), script.spec.n_agents, np.zeros(55)

    def choose(t, i, contexts, v, u):
        round_ = jax.random.fold_in(random.stream(key, "choices"), t)
        coin, other = jax.random.split(jax.random.split(round_, m)[i])
        if float(jax.random.uniform(coin)) < explore / (t + 1):
            explored[t] += 1
            return int(np.argmax(jax.random.uniform(other, (len(contexts),))))
        more = ridges[t // 5 - 1] - 1 if t >= 5 else 0
        return int(np.argmax(contexts @ np.linalg.solve(v + more * np.eye(4), u)))

    expected, synced = oracles.federated(script, 55, 5, 1.0, choose, noise=noise, psd=True)
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    theta = np.linalg.solve(ridges[-1] * np.eye(4) + oracles.project(synced[:, :4]), synced[:, 4])
    np.testing.assert_allclose(state.belief, theta, rtol=2e-4, atol=1e-4)
    assert (explored[:10] == m * (explore > 0)).all()
    assert explored[10:].sum() < 0.6 * m * 45


def test_adac_oful(script, key):
    """The sums of all batches with the noise of each: the oracle adds up batches that were released once."""
    algo = fb.algos.adac_oful(BUDGET, schedule=5, policy=fb.algos.UCB(confidence="theory", regularizer="project"))
    regret, bound, state, noise = run(script, algo, 55, key, policy=SHIFT_ONE)
    expected, synced = oracles.fed_lin_ucb(
        script, 55, 5, 1.0, lambda t: float(bound.policy.width(t)), learns=False, psd=True,
        noise=noise, prefix="batches",
    )  # fmt: skip
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    np.testing.assert_allclose(state.mechanism.view, synced, rtol=1e-4, atol=1e-3)
    assert bound.guarantee().releases_per_user == 1
    doubling = fb.algos.adac_oful(BUDGET).bind(script.spec, 60)
    assert np.unique(doubling.schedule.rounds).tolist() == [8, 16, 32]


def test_long_sums_do_not_lose_the_small_terms(key):
    """Compensated summation: 20,000 synchronisations of 0.01 on top of 2^17, where float32 would round each away."""
    env = fb.envs.script(np.full((1, 1, 1, 1), 0.1), np.ones((1, 1, 1)))
    bound = fb.algos.fed_lin_ucb(schedule=1).bind(env.spec, 20_000)
    clock = RoundClock(env=env, algo=bound, horizon=20_000)
    world, state = jax.jit(clock.init)(key)
    sums = state.mechanism.sums
    state = state._replace(mechanism=state.mechanism._replace(sums=sums._replace(high=sums.high + 2.0**17)))

    def body(carry, k):
        return clock.step(key, *carry, k)[:2], None

    (_, state), _ = jax.jit(lambda c: jax.lax.scan(body, c, np.arange(20_000)))((world, state))
    np.testing.assert_allclose(state.mechanism.sums.high - 2.0**17, [[200.0, 2000.0]], rtol=1e-3)


def test_projection_is_the_nearest_psd_matrix(key):
    matrix = np.asarray(unpack(jax.random.normal(key, (27,)), 6)[:, :6])
    values, vectors = np.linalg.eigh(matrix)
    nearest = (vectors * values.clip(0)) @ vectors.T
    np.testing.assert_allclose(with_spectrum(values.clip(0), vectors), nearest, atol=1e-5)
    np.testing.assert_allclose(fb.linalg.project(matrix), nearest, atol=1e-5)


def test_a_belief_is_a_gaussian(key):
    """N(P^-1 b, P^-1), by NumPy."""
    rows = np.asarray(jax.random.normal(key, (9, 3)))
    precision, bias, contexts = rows.T @ rows + np.eye(3), rows[0], rows[3:7]
    belief, inverse = (
        fb.linalg.GaussianBelief.solve(jnp.asarray(precision), jnp.asarray(bias)),
        np.linalg.inv(precision),
    )
    np.testing.assert_allclose(belief.mean, inverse @ bias, atol=1e-5)
    np.testing.assert_allclose(belief.std(jnp.asarray(contexts)) ** 2, np.diag(contexts @ inverse @ contexts.T), 1e-4)


@pytest.mark.parametrize("scale", [-1.0, np.float32(-1), np.float64("nan"), 1e300])
def test_a_belief_is_drawn_from_by_a_scale_of_at_least_0(key, scale):
    """Whatever kind of number it is."""
    belief = fb.linalg.GaussianBelief(jnp.ones(2), jnp.eye(2))
    with pytest.raises(ValueError, match="scale must be"):
        belief.sample(key, scale)
    for two in (2, np.int64(2), np.float64(2), jnp.float32(2)):
        np.testing.assert_array_equal(belief.sample(key, two), belief.sample(key, 2.0))


def test_released_constants():
    """The authors' lambda and beta, by hand, at M=100, S=400 (kappa=9), d=10, failure=0.01, R=0.5."""
    spec = fb.Spec(n_agents=100, n_arms=100, dim=10, max_norm=1.0)
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), calibration="authors")
    ucb = fb.algos.UCB(confidence="authors")
    bound = fb.algos.private_fed_lin_ucb(mechanism, policy=ucb, learns_in_batch=True).bind(spec, 10_000)
    sigma = np.sqrt(9 * (np.log(10) + 1))
    lam = np.sqrt(900) * sigma * (np.sqrt(9 + np.log(100)) + np.sqrt(10))
    np.testing.assert_allclose(bound.mechanism.trust.sum_std(), 10 * sigma, rtol=1e-5)
    np.testing.assert_allclose(bound.policy.regularization, lam, rtol=1e-5)
    beta = np.sqrt(lam * 10) + 0.5 * np.sqrt(10 * np.log(1 + 100 * 1234 / (10 * lam)) + np.log(100))
    np.testing.assert_allclose(bound.policy.width(1234), beta, rtol=1e-5)
    plain = fb.algos.fed_lin_ucb(policy=ucb).bind(spec, 10_000)
    np.testing.assert_allclose(plain.policy.regularization, 10.0, rtol=1e-6)


@pytest.mark.parametrize(("epsilon", "lam"), [(0.2, 4259.0), (1.0, 851.8)])
def test_released_constants_of_the_vector_sum(epsilon, lam):
    """The authors' code, whose lambda knows nothing of the noise in the bits: 4,259 in Fig. 2(b)."""
    spec = fb.Spec(n_agents=100, n_arms=100, dim=10, max_norm=1.0, rewards_in_unit=True)
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(epsilon, 0.1), trust="shuffle_vector_sum", calibration="authors")
    ucb = fb.algos.UCB(confidence="authors")
    bound = fb.algos.private_fed_lin_ucb(mechanism, policy=ucb).bind(spec, 10_000)
    assert bound.policy.regularization == pytest.approx(lam, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(release="blt"), "got Blt and SiloLocal"),
        (dict(release="prefix_tree"), "got PrefixTree and SiloLocal"),
        (dict(trust="secagg"), "got Tree and SecAgg"),
        (dict(trust="central"), "got Tree and Central"),
    ],
)
def test_nothing_was_released_for_other_mechanisms(options, words):
    mechanism = fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), **options)
    algo = fb.algos.private_fed_lin_ucb(mechanism, policy=fb.algos.UCB(confidence="authors"))
    with pytest.raises(ValueError, match=f"confidence must not be 'authors' where .* {words}"):
        algo.bind(fb.Spec(n_agents=4, n_arms=3, dim=2, max_norm=1.0, rewards_in_unit=True), 100)


def test_a_policy_reads_what_it_believed(key):
    """What a batch added is the difference of two releases, under every loop; rows of ones add 3 users of 2 silos."""

    @fb.pytree
    class Batches(fb.Policy):
        def start(self, dim):
            return jnp.zeros(dim), jnp.zeros(dim), jnp.int32(0)

        def update(self, k, belief, released):
            return released.bias, released.bias - belief[0], belief[2] + 1

        def index(self, key, t, belief, contexts):
            return contexts[:, 0]

    env = fb.envs.script(np.full((11, 2, 1, 1), 0.5), np.ones((11, 2, 1)))
    for schedule, last in ((3, 3), (fb.schedules.Geometric(2.0, first=2), 4)):
        bound = fb.algos.Federated(policy=Batches(), schedule=schedule).bind(env.spec, 11)
        clock = RoundClock(env=env, algo=bound, horizon=11)
        carry = jax.jit(clock.init)(key)
        for k in range(clock.n_steps):
            carry = jax.jit(clock.step)(key, *carry, k)[:2]
        total, added, n = carry[1].belief
        np.testing.assert_allclose(added, last)
        assert (float(total[0]), int(n)) == ((9.0, 3) if schedule == 3 else (8.0, 3))


def test_what_a_policy_is_told(key):
    """How many users are in the sums, M B (k + 1), and the noise of this release: sqrt 2 silos, one node or two."""

    @fb.pytree
    class Told(fb.Policy):
        def update(self, k, belief, released):
            return jnp.stack([k.astype(jnp.float32), released.count, released.std])

        def index(self, key, t, belief, contexts):
            return contexts[:, 0]

    spec = fb.Spec(n_agents=2, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True)
    bound = fb.algos.Federated(policy=Told(), schedule=3, privacy=fb.privacy.Budget(1.0, 0.1)).bind(spec, 12)
    state, nobody = jax.jit(bound.init, static_argnums=1)(key, spec), jnp.zeros((3, 2, 2))
    records = bound.gather(BatchRecord(nobody, nobody[:, 0], nobody[:, 0] > 0, None, None, None))
    sync = jax.jit(lambda k: bound.sync(key, k, state, None, records)[0].belief)
    sigma = math.sqrt(3 * 4.5) / fb.privacy.gaussian_mu(1.0, 0.1)  # four releases: three levels
    np.testing.assert_allclose(sync(jnp.int32(0)), [0, 6, sigma * math.sqrt(2)], rtol=1e-5)
    np.testing.assert_allclose(sync(jnp.int32(2)), [2, 18, sigma * 2], rtol=1e-5)
