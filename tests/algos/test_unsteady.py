"""What enters which release: users who come too often, rewards that come late, and silos that are away."""

import dataclasses
import itertools

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Told, arrivals, deep, silent, within_ball

import fedbandit_jax as fb
from fedbandit_jax import networks
from fedbandit_jax.algos.loops.ledger import LEFT_OUT, MISSED
from fedbandit_jax.engine.runners import Synchronous
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.proof import ABSENCES, ARRIVAL_TIMES

A, P, S = fb.algos, fb.privacy, fb.schedules
M, N, T, D, B, L = 4, 4, 24, 2, 3, 5  # silos, users, rounds, features, rounds of a batch, rounds until rewards arrive
UNITS = [P.Users(2), P.Users(5, per_batch=1), P.Users(4, per_batch=2, apart=3), P.Users(100, apart=2)]
TOGETHER = [P.Users(*bounds, silos="together") for bounds in ((7,), (5, 1), (4, 2, 3), (6, 3), (100, None, 2))]
GROWING, BUDGET = S.Geometric(1.5, first=2), P.Budget(8.0, 0.1)


def script(m=M):
    rng = np.random.default_rng(0)
    x = within_ball(rng, (T, m, 1, D), 0.2)
    users = rng.choice(N, (T, m), p=[0.5, 0.3, 0.1, 0.1])
    return fb.envs.script(x, rng.uniform(0, 1, (T, m, 1)), users=users)


def everywhere(env):
    """The same, where a number is one person at all silos."""
    return dataclasses.replace(env, spec=dataclasses.replace(env.spec, silos=M))


def newcomers(env):
    """The same, where nobody returns."""
    return dataclasses.replace(env, users=None, spec=dataclasses.replace(env.spec, n_users=0))


AWAY = fb.envs.dropout(newcomers(script()), schedule=np.random.default_rng(1).uniform(size=(T, M)) < 0.4)
LATE, LATE_USERS = fb.envs.delay(newcomers(script()), L, "geometric"), fb.envs.delay(script(), L)
LATE_EVERYWHERE = fb.envs.delay(everywhere(script()), L)


def played(algo, env, more=None, **what):
    """The bound algorithm without noise, its run, and what its state holds after 0, 1, ..., T rounds.

    Rounds within a batch see the state before it.
    """
    bound = algo.bind(env.spec, T)
    bound = bound if getattr(bound.mechanism.trust, "on_grid", False) else silent(bound)
    reads = {name: lambda now, read=read: read(now.state) for name, read in what.items()}
    ends = {f"end of {name}": fb.record.final(read) for name, read in reads.items()}
    run = ex.simulate(env, bound, horizon=T, seeds=1, record={**reads, **ends, **(more or {})})
    return bound, run, {name: np.concatenate([run.records[f][0] for f in (name, f"end of {name}")]) for name in what}


def ends_of(bound):
    """Whether a round is the last one of its batch, by a schedule that was fixed in advance."""
    if bound.schedule is None:
        return np.arange(1, T + 1) % bound.batch == 0
    return np.array([bool(np.any(bound.schedule.requests(None, jnp.int32(t), (), None, 1))) for t in range(T)])


# The oracle: rows of users, those that arrive, those that enter, and those that are sent.


def rows_of(script):
    x, y = script.contexts[:, :, 0], script.answers[..., 0]
    return x[..., None] * np.concatenate([x, y[..., None]], -1)[:, :, None]  # (T, M, d, d + 1)


def entering(users, batches, unit):
    """Which contributions (T, M) enter: one user after the other, by lists of the batches that she is in."""
    enters = np.zeros(users.shape, bool)
    came = {}
    for t, i in itertools.product(*map(range, users.shape)):
        mine = came.setdefault((unit.silos == "together" or i, users[t, i]), [])
        k = batches[t]
        room = len(mine) < unit.visits and mine.count(k) < unit.most
        enters[t, i] = room and all(k == other or k - other >= unit.apart for other in mine)
        mine += [k] * bool(enters[t, i])
    return enters


def sent(rows, ends, away=None, needed=0, resends=True):
    """What every silo has sent until every batch ended, (S, M, d, d + 1), and what is not sent."""
    held, total, found, start = np.zeros(rows.shape[1:]), np.zeros(rows.shape[1:]), [], 0
    for end in ends:
        held += rows[start:end].sum(0)
        there, start = np.ones(len(held), bool) if away is None else ~away[end - 1], end
        if there.sum() >= needed:
            total[there] += held[there]
            held[there] = 0
            held[~there] *= resends
        found.append(total.copy())
    return np.array(found), held


# Users.


def mechanism(unit):
    return P.Mechanism(P.Budget(1.0, 0.1), "blt", unit=unit)


@pytest.mark.parametrize(
    ("kind", "unit"),
    deep(
        [*itertools.product(["fixed", "growing", "gossip"], UNITS), *itertools.product(["fixed", "growing"], TOGETHER)],
        keep={9, 13, 18},  # batches of one round and of several
    ),
)
def test_silos_leave_out_the_rest(kind, unit):
    env, common = script(), dict(policy=Told(), schedule=B if kind == "fixed" else GROWING, privacy=mechanism(unit))
    env = everywhere(env) if unit in TOGETHER else env
    gossip = kind == "gossip"
    algo = A.Gossip(graph=networks.make("line", M), **common) if gossip else A.Federated(**common)
    sums = (lambda state: state.sent) if gossip else lambda state: state.ledger.mechanism.view
    bound, run, after = played(algo, env, sums=sums, count=lambda state: state.belief[..., 1])
    ends, every = ends_of(bound), slice(bound.batch - 1, None, bound.batch)
    enters, until = entering(env.users, np.cumsum(ends) - ends, unit), np.flatnonzero(ends).max() + 1
    assert 0 < enters.sum() < enters.size
    np.testing.assert_array_equal(run.counts[LEFT_OUT][0, every], (~enters).sum(1).cumsum()[every])
    rows, counts = (rows_of(env) * enters[..., None, None])[:until].sum(0), enters[:until].sum(0)
    np.testing.assert_allclose(after["sums"][-1], rows if gossip else rows.sum(0), atol=2e-5)
    np.testing.assert_array_equal(after["count"][-1], bound.hears @ counts if gossip else counts.sum())


@pytest.mark.parametrize(("kind", "unit"), deep(list(itertools.product(["agents", "streams"], UNITS[:3])), keep={2, 5}))
def test_users_by_themselves_leave_out_the_rest(kind, unit, key):
    env, common = script(1), dict(policy=Told(), schedule=GROWING, privacy=mechanism(unit))
    algo = A.AsyncFederated(**common) if kind == "agents" else A.Grouped(grouping=A.Alone(), **common)
    bound, who = silent(algo.bind(env.spec, T)), env.users[:, 0]
    state, serve, count = jax.jit(bound.init, static_argnums=1)(key, env.spec), jax.jit(bound.serve), 0
    for t, (user, x, y) in enumerate(zip(who, env.contexts[:, 0, 0], env.answers[:, 0, 0])):
        state, report = serve(key, jnp.int32(t), state, jnp.int32(user), jnp.float32(x), jnp.float32(y))
        count += int(report.counts[LEFT_OUT])
    ends = ends_of(bound)
    batches, last = np.cumsum(ends) - ends, np.full(N, np.flatnonzero(ends).max() + 1)
    if kind == "agents":  # a batch of an agent is its own
        own = (np.cumsum(who[:, None] == np.arange(N), 0) - 1)[np.arange(T), who]  # of this user before
        batches = batches[own]
        last = np.array([np.flatnonzero((who == u) & ends[own]).max(initial=-1) + 1 for u in range(N)])
    enters = entering(env.users, batches, unit) & (env.users == np.arange(N))  # (T, n)
    assert count == T - enters.sum()
    shown = (state.agents.ledger if kind == "agents" else state.ledgers).mechanism.view
    inside = enters & (np.arange(T)[:, None] < last)
    np.testing.assert_allclose(shown, np.einsum("tu,tij->uij", inside, rows_of(env)[:, 0]), atol=2e-5)
    told = (state.users, inside.sum()) if kind == "agents" else (state.belief[:, 1], inside.sum(0))
    np.testing.assert_array_equal(*told)


def test_users_are_told_apart_where_contexts_could_be_drawn():
    """Only `observe` says who came."""
    new = fb.envs.sphere(M, 3, D, rewards="bernoulli")
    returning = dataclasses.replace(new, spec=dataclasses.replace(new.spec, n_users=1))
    algo = A.Federated(schedule=B, privacy=mechanism(UNITS[0]))
    runners = [Synchronous(env=env, algo=algo.bind(env.spec, T), horizon=T) for env in (new, returning)]
    assert [runner.hints.contexts for runner in runners] == ["drawn", "stored"]


# Rewards that come late.


@pytest.mark.parametrize(
    ("env", "schedule"), deep([(LATE, B), (LATE, GROWING), (LATE_USERS, B), (LATE_EVERYWHERE, B)], keep={1, 3})
)
def test_rewards_enter_the_batch_in_which_they_arrive(env, schedule):
    """Of users who may contribute once, the first reward that arrives enters, whoever came in between."""
    unit, again = P.Users(1, silos="together" if env.spec.silos > 1 else 1), env.spec.n_users > 0
    privacy = P.Mechanism(BUDGET, "blt", unit=unit if again else None)
    algo, places = A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy), lambda now: now.offered.arrives
    bound, run, after = played(algo, env, {"places": places}, sums=lambda state: state.ledger.mechanism.sums.high)
    which, silos, ends = arrivals(run.records["places"][0]), np.arange(M), ends_of(bound)
    enters = which >= 0
    if again:
        users = np.where(enters, env.env.users[which, silos], -1 - np.arange(T)[:, None])
        enters &= entering(users, np.cumsum(ends) - ends, unit)
    ends = np.flatnonzero(ends) + 1
    expected, _ = sent(rows_of(env.env)[which, silos] * enters[..., None, None], ends)
    np.testing.assert_allclose(after["sums"][ends], expected.sum(1), atol=2e-5)
    assert np.abs(expected[-1].sum(0)).max() > (1 if env.spec.silos == 1 else 0.5)


@fb.pytree
class Elsewhere(Wrapper):
    """An environment that says that another reward arrives than silos wait for."""

    wrong: object

    def observe(self, key, world, t):
        offered, world = self.env.observe(key, world, t)
        return offered._replace(arrives=jnp.full_like(offered.arrives, self.wrong)), world


@pytest.mark.parametrize(("which", "told"), [(2, 0), (3, 4)])
def test_an_arrival_that_there_is_not_is_told(which, told):
    late = fb.envs.delay(ex.SPHERE, 3)
    env = Elsewhere(env=late, spec=late.spec, wrong=np.int32(which))
    run = ex.simulate(env, A.Federated(policy=A.Greedy(), schedule=6), seeds=2)
    assert run.status.tolist() == [told, told]


# Silos that are away.


SENT = [
    *((schedule, trust, trust == "secagg", True) for schedule in (B, GROWING) for trust in ("silo_local", "secagg")),
    *((schedule, trust, trust == "secagg", False) for schedule in (B, GROWING) for trust in ("central", "secagg")),
]


@pytest.mark.parametrize(("schedule", "trust", "dropouts", "resends"), deep(SENT, keep={0, 3, 4}))
def test_what_is_sent_and_when(schedule, trust, dropouts, resends):
    """What a silo that was away could not send comes with its next message, or never; too few release nothing."""
    privacy = P.Mechanism(BUDGET, "input_perturbation", trust, dropouts=int(dropouts), resends=resends)
    algo = A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy)
    read = dict(view=lambda state: state.ledger.mechanism.view, sums=lambda state: state.ledger.mechanism.sums.high)
    bound, run, after = played(algo, AWAY, **read)
    ends, needed = np.flatnonzero(ends_of(bound)) + 1, M - dropouts if trust == "secagg" else 0
    expected, held = sent(rows_of(AWAY.env), ends, AWAY.away, needed, resends)
    expected, there = expected.sum(1), (~AWAY.away[ends - 1]).sum(1)
    assert (there < M).any()
    assert np.abs(held).max() > 0 or not resends
    np.testing.assert_array_equal(np.diff(run.counts[MISSED][0, ends - 1], prepend=0), M - there)
    if trust == "secagg":  # whose sums are reset with every message
        assert (there < needed).any()
        views = after["view"][ends]
        assert np.abs(views - expected).max() < 6 * bound.mechanism.stds().max()
        same = np.concatenate([[False], there[1:] < needed])
        np.testing.assert_array_equal(views[same], views[np.flatnonzero(same) - 1])
        assert (np.abs(np.diff(views, axis=0)).max((1, 2)) > 0)[there[1:] >= needed].all()
    else:
        np.testing.assert_allclose(after["sums"][ends], expected, atol=2e-5)


def test_what_is_sent_is_counted_in_whole_numbers():
    """One of 41 silos sends; its share of 574 numbers is 13.999999 in float32."""
    silos, d = 41, 4
    env = fb.envs.dropout(fb.envs.sphere(silos, 2, d), schedule=np.arange(silos)[None] > 0)
    run = fb.simulate(env, A.Federated(policy=A.Greedy(), schedule=3), horizon=3, key=jax.random.key(0), seeds=1)
    packed = d * (d + 1) // 2 + d
    assert run.communication["floats"].max() == (1 + silos) * packed


@pytest.mark.parametrize("trust", ["silo_local", "secagg"])
def test_noise_is_of_those_who_are_there(trust):
    """Of zeros: each silo there adds a silo's variance, never less than is needed, to 5 % (five standard errors)."""
    away = np.array([[1, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]], bool)
    env = fb.envs.dropout(fb.envs.script(np.zeros((3, M, 1, D)), np.zeros((3, M, 1))), schedule=away)
    privacy = P.Mechanism(P.Budget(1.0, 1e-5), "input_perturbation", trust, dropouts=3 * (trust == "secagg"))
    bound = A.Federated(policy=A.Greedy(), schedule=1, privacy=privacy).bind(env.spec, 3)

    def shown(key):
        state, found = bound.init(key, env.spec), []
        for t in range(3):
            offered = env.observe(key, None, t)[0]
            local = bound.download(state, offered)
            local, record = bound.learn(t, local, offered, jnp.zeros(M, jnp.int32), jnp.zeros(M))
            records = bound.gather(jax.tree.map(lambda x: x[None], record))
            state, _ = bound.sync(jax.random.fold_in(key, t), jnp.int32(t), state, local, records)
            found.append(state.ledger.mechanism.view[:, -1])
        return jnp.stack(found)

    views = np.asarray(jax.jit(jax.vmap(shown))(jax.random.split(jax.random.key(5), 4000)))
    each = np.diff(views, axis=1, prepend=0).std((0, 2))
    silo = bound.mechanism.trust.sum_std() / M**0.5
    np.testing.assert_allclose(each, silo * np.sqrt([3, 2, 1]), rtol=0.05)
    sensitivity = 4.5**0.5
    assert silo >= sensitivity / fb.privacy.accounting.gaussian_mu(1.0, 1e-5) * 0.999  # one silo alone is enough


def test_certificates():
    """With the noise of f shares less it is the budget's."""
    spec = AWAY.spec
    plain = A.Federated(
        policy=A.Greedy(), schedule=B, privacy=P.Mechanism(BUDGET, "input_perturbation", "secagg", dropouts=2)
    )
    bound = plain.bind(spec, T)
    found = certify(bound)
    assert found.claim == "certified", found.reason
    assert 0.999 * 8 < found.epsilon_exact <= 8
    assert any(one.startswith("more than 2 of the silos that drop out") for one in found.not_covered)
    assert ABSENCES in found.not_covered
    late = plain.replace(dropouts=0).certificate(LATE.spec, T)
    assert (late.claim, ARRIVAL_TIMES in late.not_covered) == ("certified", True)
    there = A.Federated(policy=A.Greedy(), schedule=B, privacy=P.Mechanism(BUDGET, "tree", "secagg"))
    there = there.bind(dataclasses.replace(spec, drops=False), T)  # where nobody asks how many are needed
    assert certify(there).claim == "certified"
    for users in (dict(drops=True), dict(late=3)):  # what was bound for silos that are always there covers no others
        assert certify(there.replace(spec=dataclasses.replace(there.spec, **users))).claim == "none"
    ratio = bound.mechanism.trust.sum_std() / plain.replace(dropouts=0).bind(spec, T).mechanism.trust.sum_std()
    assert ratio == pytest.approx(2**0.5, rel=0.01)


def test_batches_that_are_apart_may_be_sent_together():
    """So that two contributions of one user, one to a batch, move one message by twice as much."""
    spec = dataclasses.replace(AWAY.spec, n_users=3)
    users = P.Users(2, per_batch=1, apart=2)
    kappas = [
        A.Federated(schedule=B, privacy=P.Mechanism(BUDGET, "input_perturbation", trust, unit=users, resends=resends))
        .certificate(spec, T)
        .releases_per_user
        for trust, resends in (("silo_local", True), ("silo_local", False), ("secagg", True), ("secagg", False))
    ]
    assert kappas == [4.0, 2.0, 4.0, 4.0]  # where too few send, those who are there send later in any case
