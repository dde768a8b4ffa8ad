"""Users who return: their bounds and what they cost; totals of a batch, how far one user moves them, and the proof."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import by_batches, refused, within_ball

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.ledger import CLIPPED, LEFT_OUT
from fedbandit_jax.interfaces.algorithm import certify
from fedbandit_jax.privacy.totals import UserTotals

A, P, S = fb.algos, fb.privacy, fb.schedules
M, N, T, D, B, C = 3, 4, 24, 2, 6, 0.8
BUDGET = P.Budget(1.0, 1e-5)
SPEC = fb.Spec(n_agents=4, n_arms=2, dim=2, max_norm=1.0, rewards_in_unit=True, n_users=5)
HALF = P.Linear(centred=True, gram_scale=0.5)


def test_silos_add_up():
    """Silos with noise of their own compose, so that squares add up; where sums are added up, so is one user's part."""
    size = dict(n_syncs=8, release="blt", n_agents=9, batch=1, dim=2)
    for trust, power, correction in (("silo_local", 0.5, 1e-6), ("central", 1, 1e-6), ("secagg", 1, 1e-2)):
        one, four = (P.calibrate(BUDGET, **size, trust=trust, users=P.Users(silos=silos)) for silos in (1, 4))
        assert four.sigma == pytest.approx(4**power * one.sigma, rel=correction)  # of integer noise


def test_certificates_are_of_one_user():
    unit = P.Users(6, per_batch=1, apart=2)
    bound = A.Federated(schedule=3, privacy=P.Mechanism(BUDGET, "blt", unit=unit)).bind(SPEC, 30)
    found = certify(bound)
    assert found.claim == "certified"
    words = "one user: all that she contributes, up to 6 times at a silo, 1 in a batch, in batches at least 2 apart"
    assert found.unit.startswith(words)
    lax = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, enforced=False))
    assert (certify(lax).claim, "nobody leaves out" in certify(lax).reason) == ("none", True)
    crossing = bound.replace(spec=dataclasses.replace(SPEC, silos=3))
    assert (certify(crossing).claim, "another statistic" in certify(crossing).reason) == ("none", True)


def test_promises_are_said_to_be_promises():
    """Users who are not told apart cannot be counted."""
    algo = A.Federated(schedule=3, privacy=P.Mechanism(BUDGET, "blt", unit=P.Users(3)))
    bound = algo.bind(dataclasses.replace(SPEC, n_users=0), 30)
    found = certify(bound)
    often = "up to 3 times at a silo, always at the same silo (a promise: silos do not compare users)"
    assert found.unit == f"one user, who contributes {often}, as is promised: users are not told apart here"
    said = certify(bound.replace(mechanism=dataclasses.replace(bound.mechanism, enforced=True)))
    assert (said.claim, "nobody can be left out" in said.reason) == ("none", True)


# --- Totals ---


def world():
    rng = np.random.default_rng(0)
    own = within_ball(rng, (T, M, 1, D), 0.5)
    users = rng.choice(N, (T, M), p=[0.5, 0.3, 0.1, 0.1])
    env = fb.envs.script(own, rng.uniform(0, 1, (T, M, 1)), users=users)
    object.__setattr__(env, "spec", dataclasses.replace(env.spec, constant=True))
    return env


def played(algo, env):
    """The bound algorithm, its state after every batch, and what was left out and clipped."""
    bound, offers = algo.bind(env.spec, T), [env.observe(None, None, t)[0] for t in range(T)]
    states, reports = zip(*by_batches(bound, offers, env.answers, jax.random.key(1)))
    counts = [[int(one.counts[name]) for name in (LEFT_OUT, CLIPPED)] for one in reports]
    return bound, [one.ledger.mechanism for one in states], np.array(counts)


def bind(unit, spec=None, schedule=B, **options):
    privacy = P.Mechanism(P.Budget(1.0, 0.1), unit=unit, **{"statistic": HALF, **options})
    algo = A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy)
    return algo.bind(spec or world().spec, T if spec is None else 1)


def packed(rows):
    """The squared norm of sensitivities, of [W | U] with W scaled by 1/2."""
    return (0.25 * rows[..., :-1] ** 2).sum((-2, -1)) + (rows[..., -1] ** 2).sum(-1)


def oracle(env, unit, ends, released, stds):
    """Sums of clipped totals, the average visit and the sum over visits after the last batch; and what is left out.

    Args:
        env: the visits.
        unit: the bounds.
        ends: the round after the last one of every batch.
        released: sums of totals with noise, after every batch.
        stds: the standard deviations of that noise on x x', half of which are those on x y and on x x' / 2.
    """
    centre, offset, total, visits, came, left_out = np.zeros((D, D + 1)), 0.0, np.zeros((D, D + 1)), 0, {}, 0
    for k, (start, stop) in enumerate(itertools.pairwise([0, *ends])):
        now, entered = {}, 0
        for t, i in itertools.product(range(start, stop), range(M)):
            mine = came.setdefault((i, env.users[t, i]), [])
            if k not in mine:
                if len(mine) >= unit.visits or (mine and k - mine[-1] < unit.apart):
                    left_out += 1
                    continue
                mine.append(k)
            x, y = env.contexts[t, i, 0], env.answers[t, i, 0]
            row = np.concatenate([np.outer(x, x), ((y - 0.5) * x)[:, None]], 1)
            now[i, env.users[t, i]] = now.get((i, env.users[t, i]), 0) + row - centre
            entered += 1
        total = total + sum(one * min(1, unit.total / packed(one) ** 0.5) for one in now.values())
        offset, visits = offset + entered * centre, visits + entered
        sums = released[k] + offset
        entries = D * (D + 3) // 2
        centre = max(0, 1 - (entries - 2) * (stds[k] / 2) ** 2 / packed(sums)) * sums / visits
    return total, centre, sums, left_out


@pytest.mark.parametrize(
    ("schedule", "unit"), [(B, P.Users(2, total=C)), (S.Geometric(1.7, first=5), P.Users(9, apart=2, total=C))]
)
def test_what_enters_sums(schedule, unit):
    """The sums of clipped totals, the average visit, and the sum over visits, from what was released."""
    env = world()
    privacy = P.Mechanism(P.Budget(20.0, 0.1), "blt", unit=unit, statistic=HALF)
    bound, states, counts = played(A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy), env)
    ends = np.arange(B, T + 1, B) if schedule == B else schedule.rounds(T)
    released = [states[end // bound.batch - 1].view for end in ends]
    total, centre, sums, left_out = oracle(env, unit, ends, np.asarray(released, float), bound.stds)
    last = states[ends[-1] // bound.batch - 1]
    np.testing.assert_allclose(last.sums.high, total, atol=2e-5)
    assert np.abs(last.view - total).max() > 0.1
    np.testing.assert_allclose(last.totals.centre, centre, atol=1e-5)
    np.testing.assert_allclose(last.view + last.totals.offset, sums, atol=1e-4)
    clipped = counts[:, 1].sum()
    assert 0 < clipped < M * T
    if schedule == B:
        assert counts[:, 0].sum() == left_out > 0


def test_totals_that_are_not_clipped_are_sums():
    """Whatever is subtracted before and added afterwards."""
    env = world()
    privacy = P.Mechanism(P.Budget(20.0, 0.1), unit=P.Users(9, total=50.0), statistic=HALF)
    bound, (*_, last), counts = played(A.Federated(policy=A.Greedy(), schedule=B, privacy=privacy), env)
    x, v = env.contexts.reshape(-1, D), env.answers.ravel() - 0.5
    sums = np.concatenate([x.T @ x, (x.T @ v)[:, None]], 1)
    assert counts.sum() == 0
    step = bound.mechanism.row_step  # to which totals of users of every batch are rounded
    np.testing.assert_allclose(last.sums.high + last.totals.offset, sums, atol=M * N * T // B * step / 2)
    assert np.abs(last.totals.offset).max() > 1


def test_no_user_moves_a_batch_by_more_than_two_norms():
    """Of 300 ways to replace all that one user did, around any average; and some move it by nearly that."""
    mechanism, rng = bind(P.Users(1, total=C)).mechanism, np.random.default_rng(0)
    silos = jnp.zeros(M, jnp.int32), jnp.ones(M, bool)

    @jax.jit
    def total(centre, x, v):
        totals, found = UserTotals.none(M, N, D)._replace(centre=centre), jnp.zeros((D, D + 1), jnp.int32)
        for i in range(len(x)):
            totals, change, _ = totals.add(mechanism, *silos, jnp.full(M, i == 0), x[i], v[i])
            found = found + change
        return found

    def draw():
        n = rng.integers(1, 8)
        x = rng.standard_normal((7, D, 1)) * np.ones(M)
        x /= np.linalg.norm(x, axis=1, keepdims=True) / rng.uniform(0, 1) ** 0.2
        v = rng.choice([-0.5, 0.5], (7, 1)) * np.ones(M)
        if rng.uniform() < 0.7:  # always the same
            x[:], v[:] = x[0], v[0]
        x[n:] = 0
        return jnp.float32(x), jnp.float32(v)

    moves = []
    for _ in range(300):
        square = rng.standard_normal((D, D + 1)) / 2
        square[:, :D] = (square[:, :D] + square[:, :D].T) / 2
        one, other = (np.asarray(total(jnp.float32(square), *draw())) for _ in range(2))
        assert (np.mod(one, M) == 0).all()  # all silos did the same
        moves.append(packed((one - other) / M * mechanism.row_step) ** 0.5)
    e = jnp.float32([[1.0], [0.0]]) * jnp.ones((7, 1, M))  # as all do, with rewards of 0 or of 1
    usual = jnp.float32([[1, 0, 0], [0, 0, 0]])
    one, other = (np.asarray(total(usual, e, jnp.full((7, M), v))) for v in (-0.5, 0.5))
    moves.append(packed((one - other) / M * mechanism.row_step) ** 0.5)
    assert max(moves) <= 2 * C + mechanism.statistic.rounding(M * B)
    assert mechanism.statistic.rounding(M * B) < 1e-4
    assert max(moves) > 1.999 * C


def test_no_total_overflows():
    """All of as many silos as there can be add totals of the largest norm and of one sign."""
    n, rule = 2_000, P.Linear(centred=True, gram_scale=1.0)
    spec = dataclasses.replace(world().spec, n_agents=n, n_users=1)
    mechanism = bind(P.Users(1, total=900.0), spec, 1, statistic=rule).mechanism
    far = jnp.full((D, D + 1), -1e6).at[0, 0].set(-1e8)
    totals = UserTotals.none(n, 1, D)._replace(centre=far)
    yes = jnp.ones(n, bool)
    _, found, clipped = jax.jit(UserTotals.add)(
        totals, mechanism, jnp.zeros(n, jnp.int32), yes, yes, jnp.zeros((D, n)), jnp.zeros(n)
    )
    assert clipped == n
    assert float(found[0, 0]) * mechanism.row_step == pytest.approx(n * 900, rel=1e-3)


def test_certificates_of_totals():
    """The noise of a user who moves a batch by 2 C, whose contributions are totals."""
    kappa = P.RELEASES["blt"](4).sensitivity_sq(P.Users(3, 1, 2))
    for trust in ("silo_local", "secagg"):
        bound = bind(P.Users(3, apart=2, total=C), trust=trust, release="blt")
        found = certify(bound)
        assert found.claim == "certified", found.reason
        assert "totals of norm up to 0.8 in up to 3 batches" in found.unit
        assert bound.mechanism.sensitivity == pytest.approx(kappa**0.5 * 2 * C, rel=1e-4)
        assert 0.99 < found.epsilon_exact <= 1.0
        for forged in (dict(users=P.Users(1, total=2 * C)), dict(users=P.Users(1)), dict(enforced=False)):
            mechanism = dataclasses.replace(bound.mechanism, **forged)
            assert certify(dataclasses.replace(bound, mechanism=mechanism)).claim == "none"


def test_totals_have_one_visit_to_a_batch():
    with refused("total"):
        P.Users(2, 1, total=1.0)
