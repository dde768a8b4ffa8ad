"""FedUCB and scheduled federated LinUCB equal Algorithm 1 of Dubey & Pentland (2020) on the same draws; limits."""

import math

import examples as ex
import jax
import numpy as np
import pytest
from helpers import deep
from oracles import linear as oracles
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.engine.runners import Synchronous, signature
from fedbandit_jax.privacy.packing import packed_size, unpack
from fedbandit_jax.privacy.samplers import discrete_laplace

S = fb.schedules
NOISE = jax.jit(discrete_laplace, static_argnums=2)
START = jax.jit(lambda schedule, key, floor: schedule.start(key, floor))
AT = jax.jit(lambda key, t: jax.random.fold_in(random.stream(key, "syncs"), t))
LITTLE = fb.privacy.Budget(2000.0, 0.1)  # little enough noise that the data matter


class Asks:
    """A schedule of the oracle, with the noise that the run draws."""

    def __init__(self, schedule, key, shift):
        self.schedule, self.key, self.shift, self.units = schedule, key, shift, 0

    def start(self, key, v):
        inverse = np.linalg.inv(v)
        norm = min(np.abs(inverse).sum(1).max(), np.linalg.norm(inverse))
        self.memory = START(self.schedule, random.stream(key, "epoch"), np.float32(1 / (1.001 * norm)))
        self.units = 0

    def __call__(self, t, v, own, x, since):
        schedule, d = self.schedule, len(v)
        if schedule.reads == "nothing":
            return bool(schedule.requests(None, t, (), None, since))
        if schedule.reads == "log_det":
            gained = np.linalg.slogdet(v + own[..., :d] + self.shift * np.eye(d))[1] - np.linalg.slogdet(v)[1]
            return gained >= float(schedule.threshold) / since
        if since == 1:
            self.start(self.at(t - 1) if t else random.stream(self.key, "learner"), v)
        cap = float(self.memory.cap)
        leverage = (x * np.linalg.solve(v, x.T).T).sum(1)
        self.units = self.units + np.ceil(64 * np.minimum(np.log1p(leverage) / cap, 1))
        noise = NOISE(random.stream(self.at(t), "requests"), 64 / schedule.epsilon * (1 + 1e-6), (len(x),))
        return self.units + noise >= np.ceil(64 * float(schedule.threshold) / since / cap) + self.memory.shift

    def at(self, t):
        return AT(self.key, np.int32(t))


def expect(script, bound, key):
    """The oracle on the draws of a run of `bound`."""
    policy, d = bound.policy, script.spec.dim
    thompson = isinstance(policy, fb.algos.Thompson)

    @jax.jit
    def draw_noise(t):
        step = random.stream(jax.random.fold_in(random.stream(key, "syncs"), t), "release")
        return unpack(bound.mechanism.trust.noise(step, packed_size(d)), d)

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

    asks = Asks(bound.schedule or S.Every(bound.batch).bind(None), key, float(getattr(bound, "shift", 0)))
    noise = (lambda t, k: np.asarray(draw_noise(t), float)) if hasattr(bound.mechanism, "trust") else None
    first = policy.regularization if thompson else policy.first_regularization
    return oracles.scheduled(
        script, ex.T, choose, asks, first=float(first), later=float(policy.regularization),
        learns=bound.learns_in_batch, noise=noise, most=bound.n_syncs, psd=thompson,
    )  # fmt: skip


THOMPSON = fb.algos.Federated(policy=ex.THOMPSON, schedule=S.Geometric(1.5, first=1))
PRINTED = fb.privacy.Mechanism(LITTLE, release="tree", trust="silo_local_matrix", std="dubey2020")
FEDERATED = fb.algos.Federated(schedule=S.LogDet(20.0))
PRIVATE, UCB = FEDERATED.replace(privacy=LITTLE), fb.algos.fed_ucb(LITTLE)
MORE = {
    "every four": fb.algos.fed_ucb(schedule=S.Every(4)),  # log det grows within a batch
    "zc24": fb.algos.fed_ucb(PRINTED, schedule=S.LogDet(5.0)).replace(spectral="theory"),
    "at most three": fb.algos.fed_ucb(LITTLE, schedule=S.PrivateLogDet(2.0, max_syncs=3)),
    "FedLinUCB, adaptive": FEDERATED.replace(learns_in_batch=True),
    "lazy FedLinUCB, adaptive": FEDERATED,
    "Private-FedLinUCB, geometric": PRIVATE.replace(schedule=S.Geometric(1.5, first=1)),
    "Private-FedLinUCB, private": PRIVATE.replace(
        schedule=S.PrivateLogDet(20.0, share=0.01), trust="silo_local_matrix"
    ),
    "Thompson, geometric": THOMPSON.replace(privacy=LITTLE),
    "Thompson without privacy, geometric": THOMPSON,
}
ROWS = [row.name for row in ex.EXAMPLES.values() if row.oracle == ex.FED_UCB]


@pytest.mark.parametrize("name", deep([*ROWS, *MORE], keep={0, 1, len(ROWS)}))
def test_algorithm_1(name):
    run = ex.played(name) if name in ROWS else ex.play(ex.SCRIPT, MORE[name])
    for seed in (0, 2):
        expected, synced, statistics, _ = expect(ex.SCRIPT, run.bound, jax.random.fold_in(ex.KEY, seed))
        state, rounds = run.state(seed), np.flatnonzero(run.synced[seed]).tolist()
        assert rounds == synced
        assert 2 <= len(rounds) <= ex.T
        assert int(getattr(state, "synced", len(rounds))) == len(rounds)
        np.testing.assert_allclose(run.gaps[seed], expected, atol=2e-5)
        np.testing.assert_allclose(state.ledger.mechanism.view, statistics, rtol=1e-4, atol=1e-3)
        if not any(word in name for word in ("every", "geometric", "three")):
            assert np.unique(np.diff([-1, *rounds])).size > 1  # it adapts


@pytest.mark.slow
def test_a_threshold_out_of_reach_is_independent_agents():
    """Nobody synchronises: every agent is alone with V_i, as with one agent each, if widths are 0."""
    greedy = fb.algos.UCB(exploration_scale=0.0)
    never = ex.play(ex.SCRIPT, FEDERATED.replace(schedule=S.LogDet(1e9), learns_in_batch=True, policy=greedy))
    assert not never.synced.any()
    alone = ex.play(ex.SCRIPT, fb.algos.LinUCB(policy=greedy))
    np.testing.assert_allclose(never.gaps, alone.gaps, atol=1e-4)


@pytest.mark.slow
def test_numbers_of_a_schedule_do_not_recompile():
    signatures = []
    env = fb.envs.gap(3, 5, 4)
    for threshold in (5.0, "M log T", "M^1.5"):
        algo = fb.algos.fed_ucb(schedule=S.LogDet(threshold)).bind(env.spec, 50)
        signatures.append(signature(Synchronous(env=env, algo=algo, horizon=50)))
    assert len(set(signatures)) == 1


@pytest.mark.parametrize("spectral", ["theory", "quantile"])
def test_width_by_hand(spectral):
    """Proposition 2 with the noise of PRIVATIZER at M = 3, d = 4, T = 50, one silo's tree of 6 levels."""
    m, d, horizon, failure, budget = 3, 4, 50, 0.02, fb.privacy.Budget(2.0, 0.05)
    mechanism = fb.privacy.Mechanism(budget, release="tree", trust="silo_local_matrix", std="dubey2020")
    changes = dict(spectral=spectral, failure=failure, theta_norm=0.8, subgaussian=0.3)
    algo = fb.algos.fed_ucb(mechanism, schedule=S.LogDet()).replace(**changes)
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
