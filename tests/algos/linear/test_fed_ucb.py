"""FedUCB and scheduled federated LinUCB equal Algorithm 1 of Dubey & Pentland (2020) on the same draws; limits."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, silent, stepped
from oracles import linear as oracles
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.core import random, ridge
from fedbandit_jax.engine.clocks import RoundClock, signature
from fedbandit_jax.interfaces.policy import NoiseLaw
from fedbandit_jax.privacy.packing import packed_size, unpack
from fedbandit_jax.privacy.samplers import discrete_laplace

S = fb.schedules
NOISE = jax.jit(discrete_laplace, static_argnums=2)
LITTLE = fb.privacy.Budget(2000.0, 0.1)  # little enough noise that the data matter


def run(env, algo, horizon, key, **changes):
    """The bound algorithm, regret of every round, rounds that ended with a synchronisation, and the final state."""
    bound = dataclasses.replace(algo.bind(env.spec, horizon), **changes)
    clock = RoundClock(env=env, algo=bound, horizon=horizon)
    state, (regret, synced) = stepped(told, clock, np.arange(horizon), key)
    synced = np.asarray(synced)
    return bound, np.asarray(regret).ravel()[:horizon], [k for k in range(len(synced)) if synced[k]], state


def told(state, metrics):
    """Regret of a round, and whether it ended with a synchronisation."""
    return metrics.gap, metrics.report.rounds


class Asks:
    """A schedule of the oracle, with the noise that the run draws."""

    def __init__(self, schedule, key):
        self.schedule, self.key = schedule, key

    def start(self, t, v):
        key = random.stream(self.key, "learner") if t is None else self.at(t)
        inverse = np.linalg.inv(v)
        norm = min(np.abs(inverse).sum(1).max(), np.linalg.norm(inverse))
        self.memory = jax.jit(self.schedule.start)(random.stream(key, "epoch"), np.float32(1 / (1.001 * norm)))
        self.units = 0

    def asks(self, t, gained, leverage, since):
        key, schedule = random.stream(self.at(t), "requests"), self.schedule
        if schedule.reads == "nothing":
            return bool(schedule.requests(key, t, (), None, since))
        if schedule.reads == "log_det":
            return gained >= float(schedule.threshold) / since
        cap = float(self.memory.cap)
        self.units = self.units + np.ceil(64 * np.minimum(np.log1p(leverage) / cap, 1))
        noise = NOISE(key, 64 / schedule.epsilon * (1 + 1e-6), (len(leverage),))
        return self.units + noise >= np.ceil(64 * float(schedule.threshold) / since / cap) + self.memory.shift

    def at(self, t):
        return jax.random.fold_in(random.stream(self.key, "syncs"), t)


def expect(script, bound, horizon, key):
    """The oracle on the draws of a run of `bound`."""
    policy, d = bound.policy, script.spec.dim
    thompson = isinstance(policy, fb.algos.Thompson)

    def noise(t, k):
        if not hasattr(bound.mechanism, "trust"):
            return None
        step = random.stream(jax.random.fold_in(random.stream(key, "syncs"), t), "release")
        return np.asarray(draw_noise(step), float)

    def choose(t, i, contexts, v, u):
        if thompson:
            draws = jax.random.split(jax.random.fold_in(random.stream(key, "choices"), t), script.spec.n_agents)
            z = np.asarray(jax.random.normal(draws[i], u.shape), float)
            return oracles.argmax_draw(contexts, v, u, z, policy.scale)
        width = policy.width
        beta = width(t)
        if hasattr(width, "log_det"):
            log_det = np.linalg.slogdet(v)[1]
            beta = float(width.offset) + float(width.slope) * np.sqrt(max(float(width.log_term) + log_det, 0))
        return oracles.argmax_ucb(contexts, v, u, float(beta))

    schedule = Asks(bound.schedule or S.Every(bound.batch).bind(None), key)
    draw_noise = jax.jit(lambda step: unpack(bound.mechanism.trust.noise(step, packed_size(d)), d))
    first = policy.regularization if thompson else policy.first_regularization
    return oracles.scheduled(
        script, horizon, float(first), float(policy.regularization), choose, schedule.asks, schedule.start,
        shift=float(getattr(bound, "shift", 0)), learns=bound.learns_in_batch, noise=noise, most=bound.n_syncs,
        psd=thompson,
    )  # fmt: skip


def fed_ucb(privacy=None, **options):
    """FedUCB with parameters of any of its parts."""
    return fb.algos.fed_ucb(privacy).replace(**options)


def federated(privacy=None, **options):
    """Federated LinUCB likewise."""
    return fb.algos.Federated(privacy=privacy).replace(**options)


def thompson(privacy=None, **options):
    """Thompson sampling likewise, where the posterior is not sharper than what V can bear."""
    policy = fb.algos.Thompson(regularization=0.7, scale=0.4)
    return fb.algos.Federated(policy=policy, privacy=privacy).replace(**options)


PRINTED = fb.privacy.Mechanism(LITTLE, release="prefix_tree", trust="silo_local_matrix", calibration="theorem")
ALGOS = {
    "FedUCB": fed_ucb(schedule=S.LogDet(20.0), regularization=0.3),
    "FedUCB, every round": fed_ucb(schedule=S.Every(1)),
    "Private-FedUCB, dp20": fed_ucb(LITTLE, schedule=S.LogDet(20.0, "dp20")),
    "Private-FedUCB, zc24": fed_ucb(PRINTED, schedule=S.LogDet(20.0), spectral="theory"),
    "Private-FedUCB, private": fed_ucb(LITTLE, schedule=S.PrivateLogDet(20.0), learns_in_batch=False),
    "at most three": fed_ucb(LITTLE, schedule=S.PrivateLogDet(2.0, max_syncs=3)),
    "FedLinUCB, adaptive": federated(schedule=S.LogDet(20.0), learns_in_batch=True),
    "lazy FedLinUCB, adaptive": federated(schedule=S.LogDet(20.0)),
    "Private-FedLinUCB, geometric": federated(LITTLE, schedule=S.Geometric(1.5, first=1)),
    "Private-FedLinUCB, private": federated(LITTLE, schedule=S.PrivateLogDet(20.0, share=0.01)).replace(
        trust="silo_local_matrix"
    ),
    "Thompson, geometric": thompson(LITTLE, schedule=S.Geometric(1.5, first=1)),
    "Thompson without privacy, geometric": thompson(schedule=S.Geometric(1.5, first=1)),
}


@pytest.mark.parametrize("name", deep(ALGOS, keep={0, 4}))
def test_algorithm_1(script, key, name):
    bound, regret, rounds, state = run(script, ALGOS[name], 60, key)
    expected, synced, statistics = expect(script, bound, 60, key)
    assert rounds == synced
    assert 2 <= len(rounds) <= 60
    assert int(getattr(state, "synced", 60)) == len(rounds)
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    np.testing.assert_allclose(state.mechanism.view, statistics, rtol=1e-4, atol=1e-3)
    if "every" not in name and "geometric" not in name and name != "at most three":
        assert np.unique(np.diff([-1, *rounds])).size > 1  # it adapts


@pytest.mark.slow
@pytest.mark.parametrize("cpu", [True, False], ids=["all at once", "in turn"])
@pytest.mark.parametrize("name", ["FedUCB", "Private-FedUCB, dp20", "Private-FedLinUCB, geometric"])
def test_refreshing_changes_nothing(script, key, monkeypatch, name, cpu):
    """Every 7 rounds, in the middle of epochs, with and without c > 0."""
    _, regret, rounds, state = run(script, ALGOS[name], 60, key)
    monkeypatch.setattr("fedbandit_jax.algos.loops.own_rows.REFRESH", 7)
    monkeypatch.setattr("fedbandit_jax.algos.loops.own_rows.on_cpu", lambda: cpu)
    stepped.clear_cache()
    _, again, rounds_again, state_again = run(script, ALGOS[name], 60, key)
    monkeypatch.undo()
    stepped.clear_cache()
    assert rounds == rounds_again
    if state.settled is not None:  # rows of their own are kept by those who learn from them
        assert np.abs(state_again.settled).max() > 0
    else:
        assert not np.array_equal(state_again.pending, state.pending)  # handed over at other times
    np.testing.assert_allclose(state.mechanism.view, state_again.mechanism.view, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(regret, again, atol=2e-5)
    for one, other in zip(jax.tree.leaves(state.own), jax.tree.leaves(state_again.own)):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@dataclasses.dataclass(frozen=True)
class RoundByRound(S.Schedule):
    """`Every(batch)`, which nobody knows to have equal batches."""

    batch: int

    def n_syncs(self, horizon):
        return horizon // self.batch

    def bind(self, setting):
        return S.Every(self.batch).bind(setting)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "learns"),
    deep([(fb.algos.UCB(), True), (fb.algos.UCB(), False), (fb.algos.Thompson(), False)], keep={0}),
)
def test_round_by_round_is_the_batch_loop(key, policy, learns):
    """Two loops, one algorithm: Thompson's draws are of the round, so that they are the same as well."""
    env = fb.envs.sphere(4, 6, 5, rewards="bernoulli")
    one = fb.algos.Federated(policy=policy, schedule=10, learns_in_batch=learns)
    options = dict(horizon=65, key=key, seeds=2, stride=5)
    other = one.replace(schedule=RoundByRound(10))
    assert type(one.bind(env.spec, 65)) is not type(other.bind(env.spec, 65))
    found, expected = (fb.simulate(env, algo, **options) for algo in (other, one))
    np.testing.assert_allclose(found.regret, expected.regret, atol=1e-4)
    for name in ("rounds", "floats", "bits"):
        np.testing.assert_array_equal(found.communication[name], expected.communication[name])


def test_zero_noise_is_the_non_private_run(script, key):
    private = fed_ucb(LITTLE, schedule=S.LogDet(20.0))
    plain = private.replace(privacy=None)
    bound, without = private.bind(script.spec, 60), plain.bind(script.spec, 60)
    assert bound.mechanism.trust.sum_std() > 0
    same = {name: getattr(without, name) for name in ("policy", "schedule")}
    _, regret, rounds, _ = run(script, private, 60, key, mechanism=silent(bound).mechanism, **same)
    _, expected, expected_rounds, _ = run(script, plain, 60, key)
    assert rounds == expected_rounds
    np.testing.assert_array_equal(regret, expected)


@pytest.mark.slow
def test_a_threshold_out_of_reach_is_independent_agents(key):
    """Nobody synchronises: every agent is alone with V_i, as with one agent each."""
    env = fb.envs.sphere(3, 6, 4, rewards="bernoulli")
    never = federated(schedule=S.LogDet(1e9), learns_in_batch=True)
    alone = fb.algos.LinUCB().bind(env.spec, 80)
    _, regret, rounds, _ = run(env, never, 80, key, policy=alone.policy)
    clock = RoundClock(env=env, algo=alone, horizon=80)
    world, state = jax.jit(clock.init)(key)
    assert rounds == []
    gap = jax.jit(clock.step)(key, world, state, 0)[2].gap  # of a whole piece, whatever the horizon
    np.testing.assert_allclose(regret, gap[:80], atol=1e-4)


@pytest.mark.slow
def test_seeds_side_by_side_equal_each_alone(key, same_noise):
    """Seeds that synchronise in different rounds do not disturb each other."""
    env = fb.envs.gap(3, 5, 4)
    algos = [ALGOS["FedUCB"], ALGOS["Private-FedUCB, private"]]
    algos = [algo.replace(name=str(i)) for i, algo in enumerate(algos)]
    many = fb.sweep(env, algos, horizon=50, key=key, seeds=3)
    assert len(np.unique(many.communication["rounds"][0, :, 10:40], axis=0)) > 1
    for algo in algos:
        for i in range(0, 3, 2):
            world_key = jax.random.fold_in(key, i)
            _, regret, rounds, _ = run(env, algo, 50, world_key)
            np.testing.assert_allclose(many[algo.name].regret[i], np.cumsum(regret), atol=1e-3)
            assert many[algo.name].communication["rounds"][i, -1] == len(rounds)


@pytest.mark.slow
def test_numbers_of_a_schedule_do_not_recompile():
    signatures = []
    env = fb.envs.gap(3, 5, 4)
    for threshold in (5.0, "M log T", "M^1.5"):
        algo = fed_ucb(schedule=S.LogDet(threshold)).bind(env.spec, 50)
        signatures.append(signature(RoundClock(env=env, algo=algo, horizon=50)))
    assert len(set(signatures)) == 1


@pytest.mark.slow
def test_number_of_synchronisations_without_privacy():
    """Proposition 1: at most 2 sqrt((d T / D) ln(1 + T / (d rho_min))) + 4, and more with a smaller D."""
    m, d, horizon = 4, 4, 1000
    env = fb.envs.gap(m, 10, d)
    counts = []
    for threshold in ("M log T", 100.0, 10.0):
        algo = fed_ucb(schedule=S.LogDet(threshold), regularization=1.0 / m)
        result = fb.simulate(env, algo, horizon=horizon, key=jax.random.key(0), seeds=2, stride=1000)
        threshold = float(algo.bind(env.spec, horizon).schedule.threshold)
        bound = 2 * np.sqrt(d * horizon / threshold * np.log(1 + horizon * m / (d * 0.25 * m))) + 4
        assert (result.communication["rounds"][:, -1] <= bound).all()
        counts.append(result.communication["rounds"][:, -1].mean())
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("spectral", ["theory", "quantile"])
def test_width_by_hand(spectral):
    """Proposition 2 with the noise of PRIVATIZER at M = 3, d = 4, T = 50, one silo's tree of 6 levels."""
    m, d, horizon, failure, budget = 3, 4, 50, 0.02, fb.privacy.Budget(2.0, 0.05)
    mechanism = fb.privacy.Mechanism(budget, release="prefix_tree", trust="silo_local_matrix", calibration="theorem")
    algo = fed_ucb(mechanism, spectral=spectral, failure=failure, theta_norm=0.8, subgaussian=0.3, schedule=S.LogDet())
    policy = algo.bind(fb.envs.gap(m, 5, d).spec, horizon).policy
    levels = 1 + math.ceil(math.log2(horizon))
    assert levels == 7
    sigma = 8 * math.sqrt(levels) * math.log(2 / 0.05) / 2.0  # the printed sigma_N
    nodes = levels if spectral == "theory" else 5  # of 31 = 11111 and 47 = 101111 <= 50, the worst prefixes
    tail = failure / (2 * horizon * m)
    kappa = math.sqrt(nodes) * sigma * stats.chi(d).isf(tail / 2)  # on ||h||; over sqrt(Lambda), on its norm
    low = policy.rho[0]
    if spectral == "theory":
        logs = math.log(4 / 0.05) * (4 * math.sqrt(d) + 2 * math.log(1 / tail))
        assert low == pytest.approx(math.sqrt(32) * levels * 2 * logs / 2.0)
    assert policy.rho[1] == pytest.approx(3 * low)
    assert float(policy.first_regularization) == pytest.approx(m * low)
    assert float(policy.regularization) == pytest.approx(2 * m * low)
    log_det = d * math.log(m * low) + 1.7
    expected = 0.3 * math.sqrt(2 * math.log(2 / failure) + 1.7)
    expected += 0.8 * math.sqrt(m * 3 * low) + math.sqrt(m) * kappa / math.sqrt(low)
    assert float(policy.width._replace(log_det=np.float32(log_det))(0)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: fb.algos.fed_ucb(1.0), TypeError, "privacy must be an fb.privacy.Mechanism, an fb.*, got 1.0"),
        (lambda: fed_ucb(schedule="often"), TypeError, "schedule must be one of fb.schedules or .*, got 'often'"),
        (lambda: fed_ucb(schedule=S.PrivateLogDet()), ValueError, "schedule must spend no budget without privacy, got"),
        (lambda: fed_ucb(spectral="exact"), ValueError, "spectral must be one of 'theory', 'quantile', got 'exact'"),
        (
            lambda: fed_ucb(LITTLE, calibration="authors"),
            ValueError,
            "calibration must be 'tight' or 'theorem' with .*, got 'authors'",
        ),
        (lambda: fed_ucb(regularization=0), ValueError, r"regularization must be in \[1e-05, .*, got 0"),
        (lambda: fed_ucb(learns_in_batch=1), TypeError, "learns_in_batch must be True or False, got 1"),
        (
            lambda: fb.algos.fed_ucb(policy=3),
            TypeError,
            "policy must be an fb.Policy, got 3",
        ),
    ],
)
def test_bad_parameters(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_bad_environments():
    with pytest.raises(ValueError, match="n_agents must be at least two for FedUCB .*, got an environment with 1"):
        fb.algos.fed_ucb().bind(fb.envs.gap(1, 4, 3).spec, 100)
    long = fb.envs.script(np.full((1, 2, 1, 2), 2.0), np.ones((1, 2, 1)))
    with pytest.raises(ValueError, match="norm <= 1, the environment's largest has norm 2.8"):
        fb.algos.fed_ucb(LITTLE).bind(long.spec, 100)
    with pytest.raises(ValueError, match="trust must be .* with LogDetUCB, got .central: the server"):
        fb.algos.fed_ucb(fb.privacy.Mechanism(LITTLE, trust="central")).bind(fb.envs.gap(3, 4, 3).spec, 100)


@pytest.mark.parametrize("schedule", [S.Geometric(), S.LogDet(), S.PrivateLogDet(), RoundByRound(5)])
def test_schedules_need_a_proof(schedule):
    known = isinstance(schedule, S.Geometric)
    words = "that is not fb.schedules.Every" if known else "whose batches are not fixed in advance"
    for trust in ("secagg", "shuffle_amplified", "shuffle_vector_sum")[known:]:
        mechanism = fb.privacy.Mechanism(LITTLE, trust=trust)
        with pytest.raises(ValueError, match=f"trust must be 'silo_local' or .* {words}, got '{trust}'"):
            federated(mechanism, schedule=schedule)
    with pytest.raises(ValueError, match="messages must be False with a schedule that is not .*Every, got True"):
        federated(LITTLE, messages=True, schedule=schedule).bind(fb.envs.gap(3, 4, 3).spec, 100)


def test_policies_without_a_matrix_cannot_be_read_from():
    """A schedule that reads V_i, and agents that learn by it, need a policy that has one."""
    spec = fb.envs.gap(3, 4, 3).spec
    for algo in (
        thompson(schedule=S.LogDet()),
        thompson(LITTLE, schedule=S.PrivateLogDet()),
        thompson(schedule=S.Geometric(), learns_in_batch=True),
        thompson(learns_in_batch=True),
    ):
        with pytest.raises(ValueError, match="policy must keep a matrix, as fb.algos.UCB does, .* got Thompson"):
            algo.bind(spec, 100)


def test_the_printed_trigger_needs_bounds_of_the_spectrum():
    """M (rho_max - rho_min) is of `LogDetUCB` alone."""
    with pytest.raises(ValueError, match="schedule must not have trigger 'dp20', which .*, got LogDet.threshold"):
        federated(LITTLE, schedule=S.LogDet(trigger="dp20")).bind(fb.envs.gap(3, 4, 3).spec, 100)


CLAIMS = [
    (fed_ucb(LITTLE), "none"),
    (fed_ucb(LITTLE, schedule=S.Every(10)), "as_printed"),
    (fed_ucb(LITTLE, schedule=S.PrivateLogDet()), "as_printed"),
    (fed_ucb(LITTLE, schedule=S.PrivateLogDet(), learns_in_batch=False), "certified"),
    (fed_ucb(LITTLE, schedule=S.Geometric(), learns_in_batch=False), "certified"),
    (federated(LITTLE, schedule=S.LogDet()), "none"),
    (federated(LITTLE, schedule=S.PrivateLogDet()), "certified"),
    (federated(LITTLE, schedule=S.Geometric()), "certified"),
    (thompson(LITTLE, schedule=S.Geometric()), "certified"),
]


@pytest.mark.parametrize(("algo", "claim"), CLAIMS)
def test_certificates(algo, claim):
    certificate = algo.replace(epsilon=20.0).certificate(fb.envs.gap(3, 5, 4).spec, 100)
    assert certificate.claim == claim
    private = "sparse vector" in str(certificate.schedule)
    assert private == (algo.schedule == S.PrivateLogDet())
    assert (certificate.epsilon_exact == np.inf) == (claim == "none")
    if claim == "none":
        assert "the schedule leaks" in certificate.reason
    else:
        assert certificate.epsilon_exact == pytest.approx(20, rel=1e-6)


def test_log_det_grows_inside_a_batch():
    """V = I for two agents at rho = 1/2; then ln det(I + x x') = ln(1 + |x|^2) for each of them."""
    policy = fb.algos.LogDetUCB(regularization=0.5).bind(NoiseLaw(2, 3, np.zeros(4)))
    offered = fb.Round(jnp.ones((2, 4, 3)))
    start = policy.start(3)
    start = start._replace(posterior=ridge.tile(start.posterior, 2))
    prepared = jax.jit(lambda: policy.prepare(start, offered, False))()
    x = jnp.array([[0.5, 0.0], [0.5, 0.8], [0.0, 0.6]])
    np.testing.assert_allclose(prepared.width.log_det, 0, atol=1e-6)
    learned = jax.jit(policy.learn)(prepared, offered, x, jnp.ones(2))
    np.testing.assert_allclose(learned.width.log_det, np.log([1.5, 2]), rtol=1e-5)
