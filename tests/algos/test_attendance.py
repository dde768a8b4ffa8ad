"""Users who contribute more often than their guarantee allows are left out of all sums, by every loop."""

import dataclasses
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import by_batches, deep, silent, within_ball
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit_jax as fb
from fedbandit_jax import networks
from fedbandit_jax.algos.loops.ledger import LEFT_OUT
from fedbandit_jax.engine.runners import Synchronous
from fedbandit_jax.privacy.attendance import Attendance

M, N, T, D, B = 3, 4, 24, 2, 3
UNITS = [
    fb.privacy.Users(2),
    fb.privacy.Users(5, per_batch=1),
    fb.privacy.Users(4, per_batch=2, apart=3),
    fb.privacy.Users(100, apart=2),
]
SCHEDULE = fb.schedules.Geometric(1.5, first=2)


@fb.pytree
class Told(fb.Policy):
    """A policy whose belief is how many users it was told are in the sums."""

    def update(self, k, belief, released):
        return released.count

    def index(self, key, t, belief, contexts):
        return jnp.zeros(len(contexts))


def entering(users, batches, unit):
    """Which contributions (T, M) enter: one user after the other, by lists of the batches that she is in."""
    enters = np.zeros(users.shape, bool)
    came = {}
    for t, i in itertools.product(*map(range, users.shape)):
        mine = came.setdefault((i, users[t, i]), [])
        k = batches[t]
        room = len(mine) < unit.visits and mine.count(k) < unit.most
        enters[t, i] = room and all(k == other or k - other >= unit.apart for other in mine)
        mine += [k] * bool(enters[t, i])
    return enters


@jax.jit
def come(row, k, visits, most, apart):
    """One program for all bounds, which are numbers here."""
    return row.come(SimpleNamespace(visits=visits, most=most, apart=apart), k)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 5),
)
def test_attendance_is_a_list_of_batches(comes, visits, per_batch, apart):
    unit = fb.privacy.Users(visits, min(per_batch, visits), apart)
    users = np.array([user for user, _ in comes], int)[:, None].reshape(-1, 1)
    batches = np.cumsum([ends for _, ends in comes]).astype(int)
    found, table = [], Attendance(*(np.array(x) for x in Attendance.none(3)))
    for (user,), k in zip(users, batches):
        row = Attendance(*(np.int32(column[user]) for column in table))
        enters, new = come(row, np.int32(k), *map(np.int32, (unit.visits, unit.most, unit.apart)))
        for column, value in zip(table, new):
            column[user] = value
        found.append(bool(enters))
    np.testing.assert_array_equal(np.array(found, bool).reshape(-1, 1), entering(users, batches, unit))


def drawn(m):
    rng = np.random.default_rng(0)
    x = within_ball(rng, (T, m, 1, D), 0.2)
    users = rng.choice(N, (T, m), p=[0.5, 0.3, 0.1, 0.1])
    return fb.envs.script(x, rng.uniform(0, 1, (T, m, 1)), users=users)


def played(bound, env):
    """What is left out in every round, and the state after the last, of agents who have one arm."""
    offers = [env.observe(None, None, t)[0] for t in range(T)]
    states, reports = zip(*by_batches(bound, offers, env.answers, jax.random.key(1)))
    return [int(report.counts[LEFT_OUT]) for report in reports], states[-1]


def sums(env, enters, until, agent=slice(None)):
    """[sum x x' | sum x y] over contributions of the first rounds."""
    x = np.where(enters[..., None], env.contexts[:, :, 0], 0)[:until, agent].reshape(-1, D)
    y = env.answers[:until, agent, 0].reshape(-1)
    return np.concatenate([x.T @ x, (x.T @ y)[:, None]], 1)


def mechanism(unit, **options):
    return fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), "blt", unit=unit, **options)


def ends_of(bound):
    """Whether a round is the last one of its batch, by a schedule that was fixed in advance."""
    if bound.schedule is None:
        return np.arange(1, T + 1) % bound.batch == 0
    return np.array([bool(np.any(bound.schedule.requests(None, jnp.int32(t), (), None, 1))) for t in range(T)])


@pytest.mark.parametrize(
    ("kind", "unit"), deep(list(itertools.product(["fixed", "growing", "gossip"], UNITS)), keep={2, 5, 9})
)
def test_silos_leave_out_the_rest(kind, unit):
    env = drawn(M)
    common = dict(policy=Told(), schedule=B if kind == "fixed" else SCHEDULE, privacy=mechanism(unit))
    algo = fb.algos.Federated(**common)
    if kind == "gossip":
        algo = fb.algos.Gossip(graph=networks.make("line", M), **common)
    bound = silent(algo.bind(env.spec, T))
    left_out, state = played(bound, env)
    ends = ends_of(bound)
    enters, until = entering(env.users, np.cumsum(ends) - ends, unit), np.flatnonzero(ends).max() + 1
    assert 0 < enters.sum() < enters.size
    np.testing.assert_array_equal(left_out, (~enters).sum(1).reshape(-1, bound.batch).sum(1))
    if kind == "gossip":
        for i in range(M):
            np.testing.assert_allclose(state.sent[i], sums(env, enters, until, slice(i, i + 1)), atol=2e-5)
        np.testing.assert_array_equal(state.belief, bound.hears @ enters[:until].sum(0))
    else:
        np.testing.assert_allclose(state.ledger.mechanism.view, sums(env, enters, until), atol=2e-5)
        assert state.belief == enters[:until].sum()


@pytest.mark.parametrize(("kind", "unit"), deep(list(itertools.product(["agents", "streams"], UNITS[:3])), keep={2, 5}))
def test_users_by_themselves_leave_out_the_rest(kind, unit):
    env = drawn(1)
    common = dict(policy=Told(), schedule=SCHEDULE, privacy=mechanism(unit))
    algo = (
        fb.algos.AsyncFederated(**common) if kind == "agents" else fb.algos.Grouped(grouping=fb.algos.Alone(), **common)
    )
    bound, key = silent(algo.bind(env.spec, T)), jax.random.key(1)
    state, serve, count = jax.jit(bound.init, static_argnums=1)(key, env.spec), jax.jit(bound.serve), 0
    for t in range(T):
        user, x, y = env.users[t, 0], env.contexts[t, 0, 0], env.answers[t, 0, 0]
        state, report = serve(key, jnp.int32(t), state, jnp.int32(user), jnp.float32(x), jnp.float32(y))
        count += int(report.counts[LEFT_OUT])
    came, batches = np.zeros(N, int), np.zeros(T, int)
    ends = ends_of(bound)
    if kind == "streams":
        batches, last = np.cumsum(ends) - ends, np.full(N, np.flatnonzero(ends).max() + 1)
    else:
        last = np.zeros(N, int)
        for t, user in enumerate(env.users[:, 0]):  # a batch of an agent is its own
            batches[t] = ends[: came[user]].sum()
            came[user] += 1
            last[user] = t + 1 if ends[came[user] - 1] else last[user]
    enters = np.stack([entering(env.users, batches, unit)[:, 0] & (env.users[:, 0] == u) for u in range(N)], 1)
    assert count == T - enters.sum()
    shown = (state.agents.ledger if kind == "agents" else state.ledgers).mechanism.view
    for u in range(N):
        np.testing.assert_allclose(shown[u], sums(env, enters[:, u : u + 1], last[u]), atol=2e-5)
    entered = [enters[: last[u], u].sum() for u in range(N)]
    np.testing.assert_array_equal(*((state.users, sum(entered)) if kind == "agents" else (state.belief, entered)))


def test_users_are_told_apart_where_contexts_could_be_drawn():
    """Only `observe` says who came."""
    new = fb.envs.sphere(M, 3, D, rewards="bernoulli")
    returning = dataclasses.replace(new, spec=dataclasses.replace(new.spec, n_users=1))
    algo = fb.algos.Federated(schedule=B, privacy=mechanism(UNITS[0]))
    runners = [Synchronous(env=env, algo=algo.bind(env.spec, T), horizon=T) for env in (new, returning)]
    assert [runner.hints.contexts for runner in runners] == ["drawn", "stored"]
