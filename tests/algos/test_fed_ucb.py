"""FedUCB and scheduled federated LinUCB equal Algorithm 1 of Dubey & Pentland (2020) on the same draws; limits."""

import dataclasses

import jax
import numpy as np
import oracles
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algos.linear import _tracked
from fedbandit_jax.core import random
from fedbandit_jax.engine.process import RoundProcess
from fedbandit_jax.privacy.noise import discrete_laplace
from fedbandit_jax.privacy.statistic import unpack

S = fb.schedules
LITTLE = fb.privacy.Budget(2000.0, 0.1)  # little enough noise that the data matter


def run(env, algo, horizon, key, **changes):
    """The bound algorithm, regret of every round, rounds that ended with a synchronisation, and the final state."""
    bound = dataclasses.replace(algo.bind(env.spec, horizon), **changes)
    state, regret, synced = play(RoundProcess(env=env, algo=bound, horizon=horizon), key)
    synced = np.asarray(synced)
    return bound, np.asarray(regret).ravel()[:horizon], [k for k in range(len(synced)) if synced[k]], state


@jax.jit
def play(process, key):
    """Final state, regret of every round, and whether it ended with a synchronisation."""

    def body(carry, k):
        world, state, metrics = process.step(key, *carry, k)
        return (world, state), (metrics.regret, metrics.report.rounds)

    (_, state), (regret, synced) = jax.lax.scan(body, process.init(key), np.arange(process.n_steps))
    return state, regret, synced


class Asks:
    """A schedule of the oracle, with the noise that the run draws."""

    def __init__(self, schedule, key):
        self.schedule, self.key = schedule, key

    def start(self, t, v):
        key = random.stream(self.key, "learner") if t is None else self.at(t)
        inverse = np.linalg.inv(v)
        norm = min(np.abs(inverse).sum(1).max(), np.linalg.norm(inverse))
        self.memory = self.schedule.start(random.stream(key, "epoch"), np.float32(1 / (1.001 * norm)))
        self.units = 0

    def asks(self, t, gained, leverage, since):
        key, schedule = random.stream(self.at(t), "requests"), self.schedule
        if schedule.reads == "nothing":
            return bool(schedule.requests(key, t, (), None, since))
        if schedule.reads == "log_det":
            return gained >= float(schedule.threshold) / since
        cap, share = float(self.memory.cap), 1 / (1 + 2 ** (2 / 3))
        self.units = self.units + np.ceil(64 * np.minimum(np.log1p(leverage) / cap, 1))
        noise = discrete_laplace(key, 128 / ((1 - share) * schedule.epsilon) * (1 + 1e-6), (len(leverage),))
        return self.units + noise >= np.ceil(64 * float(schedule.threshold) / since / cap) + self.memory.shift

    def at(self, t):
        return jax.random.fold_in(random.stream(self.key, "syncs"), t)


def expect(script, bound, horizon, key):
    """The oracle on the draws of a run of `bound`."""

    def noise(t, k):
        if not hasattr(bound.channel, "protocol"):
            return None
        x, y = np.zeros((0, script.spec.dim, script.spec.n_agents)), np.zeros((0, script.spec.n_agents))
        step = random.stream(jax.random.fold_in(random.stream(key, "syncs"), t), "release")
        draw, _ = bound.channel.protocol.noise(step, k, (), x, y)
        return np.asarray(unpack(draw, script.spec.dim), float)

    def beta(t, log_det):
        width = bound.width
        if hasattr(width, "log_det"):
            return float(width.offset) + float(width.slope) * np.sqrt(max(float(width.log_term) + log_det, 0))
        return float(width(t))

    schedule = Asks(bound.schedule, key)
    return oracles.scheduled(
        script, horizon, float(bound.first_regularization), float(bound.regularization), beta, schedule.asks,
        schedule.start, shift=float(bound.shift), lazy=bound.lazy, noise=noise, most=bound.n_syncs,
    )  # fmt: skip


ALGOS = {
    "FedUCB": fb.algos.fed_ucb(schedule=S.logdet(20.0), regularization=0.3),
    "FedUCB, every round": fb.algos.fed_ucb(schedule=S.every(1)),
    "Private-FedUCB, dp20": fb.algos.fed_ucb(LITTLE, schedule=S.logdet(20.0, "dp20")),
    "Private-FedUCB, zc24": fb.algos.fed_ucb(LITTLE, schedule=S.logdet(20.0), spectral="theory", calibration="theorem"),
    "Private-FedUCB, private": fb.algos.fed_ucb(LITTLE, schedule=S.private_logdet(20.0), lazy=True),
    "at most three": fb.algos.fed_ucb(LITTLE, schedule=S.private_logdet(2.0, max_syncs=3)),
    "FedLinUCB, adaptive": fb.algos.fed_lin_ucb(batch=S.logdet(20.0)),
    "lazy FedLinUCB, adaptive": fb.algos.fed_lin_ucb(batch=S.logdet(20.0), lazy=True),
    "Private-FedLinUCB, geometric": fb.algos.private_fed_lin_ucb(LITTLE, batch=S.geometric(1.5)),
    "Private-FedLinUCB, private": fb.algos.private_fed_lin_ucb(
        LITTLE, batch=S.private_logdet(20.0, share=0.01), trust="silo_local_matrix"
    ),
}


@pytest.mark.parametrize("name", ALGOS)
def test_algorithm_1(script, key, name):
    bound, regret, rounds, state = run(script, ALGOS[name], 60, key)
    expected, synced, statistics = expect(script, bound, 60, key)
    assert rounds == synced
    assert 2 <= len(rounds) <= 60
    assert int(state.synced) == len(rounds)
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    np.testing.assert_allclose(state.channel.view, statistics, rtol=1e-4, atol=1e-3)
    if "every" not in name and "geometric" not in name and name != "at most three":
        assert np.unique(np.diff([-1, *rounds])).size > 1  # it adapts


def test_refreshing_changes_nothing(script, key, monkeypatch):
    """Every 7 rounds, in the middle of epochs, with and without c > 0."""
    for name in ("FedUCB", "Private-FedUCB, dp20"):
        _, regret, rounds, state = run(script, ALGOS[name], 60, key)
        monkeypatch.setattr("fedbandit_jax.algos.linear._scheduled.REFRESH", 7)
        play.clear_cache()
        _, again, rounds_again, state_again = run(script, ALGOS[name], 60, key)
        monkeypatch.setattr("fedbandit_jax.algos.linear._scheduled.REFRESH", _tracked.REFRESH)
        play.clear_cache()
        assert rounds == rounds_again
        np.testing.assert_allclose(regret, again, atol=2e-5)
        for one, other in zip(jax.tree.leaves(state.own), jax.tree.leaves(state_again.own)):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("lazy", [False, True])
def test_every_batch_is_the_fixed_batch_algorithm(key, lazy):
    env = fb.envs.sphere(4, 6, 5, rewards="bernoulli")
    one = fb.algos.fed_lin_ucb(batch=S.every(10), lazy=lazy)
    options = dict(horizon=65, key=key, n_seeds=2, stride=5)
    found, expected = (fb.simulate(env, algo, **options) for algo in (one, one.replace(batch=10)))
    np.testing.assert_allclose(found.regret, expected.regret, atol=1e-4)
    for name in ("rounds", "floats", "bits"):
        np.testing.assert_array_equal(found.communication[name], expected.communication[name])


def test_zero_noise_is_the_non_private_run(script, key):
    private = fb.algos.fed_ucb(LITTLE, schedule=S.logdet(20.0))
    plain = fb.algos.fed_ucb(schedule=S.logdet(20.0)).bind(script.spec, 60)
    bound = private.bind(script.spec, 60)
    protocol = bound.channel.protocol
    mute = dataclasses.replace(bound.channel, protocol=dataclasses.replace(protocol, std=np.zeros_like(protocol.std)))
    assert protocol.sum_std() > 0
    same = {name: getattr(plain, name) for name in ("first_regularization", "regularization", "width", "schedule")}
    _, regret, rounds, _ = run(script, private, 60, key, channel=mute, **same)
    _, expected, expected_rounds, _ = run(script, fb.algos.fed_ucb(schedule=S.logdet(20.0)), 60, key)
    assert rounds == expected_rounds
    np.testing.assert_array_equal(regret, expected)


def test_a_threshold_out_of_reach_is_independent_agents(key):
    """Nobody synchronises: every agent is alone with V_i, as with one agent each."""
    env = fb.envs.sphere(3, 6, 4, rewards="bernoulli")
    never = fb.algos.fed_lin_ucb(batch=S.logdet(1e9))
    width = fb.algos.lin_ucb().bind(env.spec, 80).width
    _, regret, rounds, _ = run(env, never, 80, key, width=width)
    process = RoundProcess(env=env, algo=fb.algos.lin_ucb().bind(env.spec, 80), horizon=80)
    world, state = process.init(key)
    assert rounds == []
    assert process.algo.batch == 80
    np.testing.assert_allclose(regret, jax.jit(process.step)(key, world, state, 0)[2].regret, atol=1e-4)


def test_seeds_side_by_side_equal_each_alone(key):
    """Seeds that synchronise in different rounds do not disturb each other."""
    env = fb.envs.gap(3, 5, 4)
    algos = [ALGOS["FedUCB"], ALGOS["Private-FedUCB, private"]]
    algos = [algo.replace(name=str(i)) for i, algo in enumerate(algos)]
    many = fb.sweep(env, algos, horizon=50, key=key, n_seeds=3)
    assert len(np.unique(many.communication["rounds"][0, :, 10:40], axis=0)) > 1
    for algo in algos:
        for i in range(0, 3, 2):
            world_key = jax.random.fold_in(key, i)
            _, regret, rounds, _ = run(env, algo, 50, world_key)
            np.testing.assert_allclose(many[algo.name].regret[i], np.cumsum(regret), atol=1e-3)
            assert many[algo.name].communication["rounds"][i, -1] == len(rounds)


def test_numbers_of_a_schedule_do_not_recompile(key, monkeypatch):
    from fedbandit_jax import driver

    signatures = []
    env = fb.envs.gap(3, 5, 4)
    for threshold in (5.0, "M log T", "M^1.5"):
        algo = fb.algos.fed_ucb(schedule=S.logdet(threshold)).bind(env.spec, 50)
        signatures.append(driver.signature(RoundProcess(env=env, algo=algo, horizon=50)))
    assert len(set(signatures)) == 1


def test_number_of_synchronisations_without_privacy():
    """Proposition 1: at most 2 sqrt((d T / D) ln(1 + T / (d rho_min))) + 4, and more with a smaller D."""
    m, d, horizon = 4, 4, 1000
    env = fb.envs.gap(m, 10, d)
    counts = []
    for threshold in ("M log T", 100.0, 10.0):
        algo = fb.algos.fed_ucb(schedule=S.logdet(threshold), regularization=1.0 / m)
        result = fb.simulate(env, algo, horizon=horizon, key=jax.random.key(0), n_seeds=2, stride=1000)
        threshold = float(algo.bind(env.spec, horizon).schedule.threshold)
        bound = 2 * np.sqrt(d * horizon / threshold * np.log(1 + horizon * m / (d * 0.25 * m))) + 4
        assert (result.communication["rounds"][:, -1] <= bound).all()
        counts.append(result.communication["rounds"][:, -1].mean())
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (dict(budget=1.0), TypeError, "budget must be a fb.privacy.Budget or None, got 1.0"),
        (dict(schedule=25), TypeError, "schedule must be one of fb.schedules, got 25"),
        (dict(schedule=S.private_logdet()), ValueError, "schedule must spend no budget when budget is None"),
        (dict(spectral="exact"), ValueError, "spectral must be one of 'theory', 'quantile', got 'exact'"),
        (dict(calibration="released"), ValueError, "calibration must be 'tight' or 'theorem' with .*, got 'released'"),
        (dict(regularization=0), ValueError, "regularization must be finite and > 0, got 0"),
        (dict(lazy=1), TypeError, "lazy must be True or False, got 1"),
    ],
)
def test_bad_parameters(options, error, words):
    with pytest.raises(error, match=words):
        fb.algos.fed_ucb(**options)


def test_bad_environments():
    with pytest.raises(ValueError, match="FedUCB needs at least two agents .*, the environment has 1"):
        fb.algos.fed_ucb().bind(fb.envs.gap(1, 4, 3).spec, 100)
    long = fb.envs.script(np.full((1, 2, 1, 2), 2.0), np.ones((1, 2, 1)))
    with pytest.raises(ValueError, match="norm <= 1, the environment's largest has norm 2.8"):
        fb.algos.fed_ucb(LITTLE).bind(long.spec, 100)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(trust="secagg"), "trust must be 'silo_local' or .* with a schedule, got 'secagg'"),
        (dict(messages=True), "messages must be False with a schedule, got True"),
        (dict(batch=S.logdet(trigger="dp20")), "batch must have trigger 'zc24'"),
    ],
)
def test_schedules_need_a_proof(options, words):
    with pytest.raises(ValueError, match=words):
        fb.algos.private_fed_lin_ucb(LITTLE, **{"batch": S.geometric(), **options})
    with pytest.raises(TypeError, match=r"batch must be an integer or a schedule such as .*, got 'logdet'"):
        fb.algos.fed_lin_ucb(batch="logdet")
    with pytest.raises(ValueError, match="batch must be .* without a budget of its own, got private_logdet"):
        fb.algos.fed_lin_ucb(batch=S.private_logdet())


CLAIMS = [
    (fb.algos.fed_ucb(LITTLE), "none"),
    (fb.algos.fed_ucb(LITTLE, schedule=S.every(10)), "as_printed"),
    (fb.algos.fed_ucb(LITTLE, schedule=S.private_logdet()), "as_printed"),
    (fb.algos.fed_ucb(LITTLE, schedule=S.private_logdet(), lazy=True), "certified"),
    (fb.algos.fed_ucb(LITTLE, schedule=S.geometric(), lazy=True), "certified"),
    (fb.algos.private_fed_lin_ucb(LITTLE, batch=S.logdet()), "none"),
    (fb.algos.private_fed_lin_ucb(LITTLE, batch=S.private_logdet()), "certified"),
    (fb.algos.private_fed_lin_ucb(LITTLE, batch=S.geometric()), "certified"),
]


@pytest.mark.parametrize(("algo", "claim"), CLAIMS)
def test_certificates(algo, claim):
    certificate = algo.certificate(fb.envs.gap(3, 5, 4).spec, 100)
    assert certificate.claim == claim
    private = "sparse vector" in str(certificate.schedule)
    assert private == (algo.schedule == S.private_logdet())
    assert (certificate.epsilon_exact == np.inf) == (claim == "none")
    if claim == "none":
        assert "the schedule leaks" in certificate.reason
    else:
        assert certificate.epsilon_exact == pytest.approx(LITTLE.epsilon)
