"""Silos that miss synchronisations: who is away, what enters sums and when, its noise, and what is proved."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import by_batches, deep, refused, silent, within_ball

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.ledger import MISSED
from fedbandit_jax.interfaces.algorithm import certify

A, P, S = fb.algos, fb.privacy, fb.schedules
M, T, D, B = 4, 24, 2, 3
GROWING = S.Geometric(1.5, first=2)
BUDGET = P.Budget(8.0, 0.1)


def test_who_is_away():
    """As often as the rate says, whoever else is; by the schedule where there is one, whose last row goes on."""
    inner, n, rates = fb.envs.sphere(M, 2, 3), 4000, [0.0, 0.2, 0.2, 0.7]
    env, listed = fb.envs.dropout(inner, rates), fb.envs.dropout(inner, schedule=np.eye(M, dtype=bool))

    @jax.jit
    def seen(keys):
        world, arms, key = env.init(jax.random.key(1)), jnp.zeros(M, jnp.int32), jax.random.key(3)
        away = jax.vmap(lambda key: env.observe(key, world, 0)[0].away)(keys)
        offered, _ = env.observe(keys[0], world, 0)
        pulled = [one.pull(key, world, offered, arms).gap for one in (env, inner)]
        return away, pulled, [listed.observe(keys[0], world, jnp.int32(t))[0].away for t in (0, 2, 3, 9)]

    away, gaps, found = jax.tree.map(np.asarray, seen(jax.random.split(jax.random.key(0), n)))
    np.testing.assert_allclose(away.mean(0), rates, atol=5 * 0.5 / n**0.5)
    assert (away[:, 1] & away[:, 2]).mean() == pytest.approx(0.04, abs=5 * 0.2 / n**0.5)
    np.testing.assert_array_equal(*gaps)
    np.testing.assert_array_equal(found, np.eye(M, dtype=bool)[[0, 2, 3, 3]])


def world(seed=0, silos=M, rate=0.4):
    rng = np.random.default_rng(seed)
    x = within_ball(rng, (T, silos, 1, D), 0.2)
    script = fb.envs.script(x, rng.uniform(0, 1, (T, silos, 1)))
    return fb.envs.dropout(script, schedule=rng.uniform(size=(T, silos)) < rate)


def played(algo, env, key):
    """The bound algorithm, the states of its mechanism after every batch, and how many silos missed one."""
    bound = algo.bind(env.spec, T)
    bound = bound if bound.mechanism.trust.on_grid else silent(bound)
    offers = [env.observe(key, None, t)[0] for t in range(T)]
    states, reports = zip(*by_batches(bound, offers, env.env.answers, key))
    return bound, [one.ledger.mechanism for one in states], np.array([int(one.counts[MISSED]) for one in reports])


def oracle(env, ends, needed, resends):
    """Sums [x x' | x y] of all that was sent until every batch ended, (S, d, d + 1), and what is not sent."""
    x, y, away = env.env.contexts[:, :, 0], env.env.answers[..., 0], env.away
    rows = x[..., None] * np.concatenate([x, y[..., None]], -1)[:, :, None]
    held, total, found, start = np.zeros((env.spec.n_agents, D, D + 1)), np.zeros((D, D + 1)), [], 0
    for end in ends:
        held += rows[start:end].sum(0)
        there, start = ~away[end - 1], end
        if there.sum() >= needed:
            total = total + held[there].sum(0)
            held[there] = 0
        if not resends and there.sum() >= needed:
            held[~there] = 0
        found.append(total)
    return np.array(found), held


SENT = [
    *((schedule, trust, trust == "secagg", True) for schedule in (B, GROWING) for trust in ("silo_local", "secagg")),
    *((schedule, trust, trust == "secagg", False) for schedule in (B, GROWING) for trust in ("central", "secagg")),
]


@pytest.mark.parametrize(("schedule", "trust", "dropouts", "resends"), deep(SENT, keep={0, 1, 2, 3, 4}))
def test_what_is_sent_and_when(key, schedule, trust, dropouts, resends):
    """What a silo that was away could not send comes with its next message, or never; too few release nothing."""
    env = world()
    privacy = P.Mechanism(BUDGET, "input_perturbation", trust, dropouts=int(dropouts), resends=resends)
    bound, states, missed = played(A.Federated(policy=A.Greedy(), schedule=schedule, privacy=privacy), env, key)
    ends = np.arange(B, T + 1, B) if schedule == B else np.asarray(schedule.rounds(T))
    needed = M - dropouts if trust == "secagg" else 0
    expected, held = oracle(env, ends, needed, resends)
    there = (~env.away[ends - 1]).sum(1)
    assert (there < M).any()
    assert np.abs(held).max() > 0 or not resends
    np.testing.assert_array_equal(missed[ends // bound.batch - 1], M - there)
    views = np.array([states[end // bound.batch - 1].view for end in ends])
    if trust == "secagg":
        assert (there < needed).any()
        std = bound.mechanism.stds().max()  # sums are reset with every message; the view has their noise
        assert np.abs(views - expected).max() < 6 * std
        same = np.concatenate([[False], there[1:] < needed])
        np.testing.assert_array_equal(views[same], views[np.flatnonzero(same) - 1])
        assert (np.abs(np.diff(views, axis=0)).max((1, 2)) > 0)[there[1:] >= needed].all()
    else:
        sums = np.array([states[end // bound.batch - 1].sums.high for end in ends])
        np.testing.assert_allclose(sums, expected, atol=2e-5)


def test_what_is_sent_is_counted_in_whole_numbers():
    """One of 41 silos sends; its share of 574 numbers is 13.999999 in float32."""
    silos, d = 41, 4
    env = fb.envs.dropout(fb.envs.sphere(silos, 2, d), schedule=np.arange(silos)[None] > 0)
    run = fb.simulate(env, A.Federated(policy=A.Greedy(), schedule=3), horizon=3, key=jax.random.key(0), seeds=1)
    packed = d * (d + 1) // 2 + d
    assert run.communication["floats"].max() == (1 + silos) * packed


@pytest.mark.parametrize("trust", ["silo_local", "secagg"])
def test_noise_is_of_those_who_are_there(trust):
    """Of zeros, with one, two or three of four silos away: a silo's variance each, and never less than is needed.

    5 % of the standard deviation is more than five standard errors.
    """
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
    """With the noise of f shares less it is the budget's; claims of more silos away, or of less noise, are lost."""
    spec = world().spec
    plain = A.Federated(
        policy=A.Greedy(), schedule=B, privacy=P.Mechanism(BUDGET, "input_perturbation", "secagg", dropouts=2)
    )
    bound = plain.bind(spec, T)
    found = certify(bound)
    assert found.claim == "certified", found.reason
    assert 0.999 * 8 < found.epsilon_exact <= 8
    assert any(one.startswith("more than 2 of the silos that drop out") for one in found.not_covered)
    assert "which silos miss which synchronisation" in found.not_covered
    for other in (3, 4, -3):
        none = dataclasses.replace(bound.mechanism.trust, dropouts=other)
        assert certify(bound.replace(mechanism=dataclasses.replace(bound.mechanism, trust=none))).claim == "none"
    there = A.Federated(policy=A.Greedy(), schedule=B, privacy=P.Mechanism(BUDGET, "tree", "secagg"))
    there = there.bind(dataclasses.replace(spec, drops=False), T)  # where nobody asks how many are needed
    more = dataclasses.replace(there.mechanism.trust, dropouts=-3, share=there.mechanism.trust.share * 0.8)
    assert certify(there).claim == "certified"
    assert certify(there.replace(mechanism=dataclasses.replace(there.mechanism, trust=more))).claim == "none"
    tree = P.RELEASES["tree"](T // B)
    assert certify(bound.replace(mechanism=dataclasses.replace(bound.mechanism, release=tree))).claim == "none"
    for users in (dict(drops=True), dict(late=3)):  # what was bound for silos that are always there covers no others
        assert certify(there.replace(spec=dataclasses.replace(there.spec, **users))).claim == "none"
    ratio = bound.mechanism.trust.sum_std() / plain.replace(dropouts=0).bind(spec, T).mechanism.trust.sum_std()
    assert ratio == pytest.approx(2**0.5, rel=0.01)


def test_batches_that_are_apart_may_be_sent_together():
    """So that two contributions of one user, one to a batch, move one message by twice as much."""
    spec = dataclasses.replace(world().spec, n_users=3)
    users = P.Users(2, per_batch=1, apart=2)
    kappas = [
        A.Federated(schedule=B, privacy=P.Mechanism(BUDGET, "input_perturbation", trust, unit=users, resends=resends))
        .certificate(spec, T)
        .releases_per_user
        for trust, resends in (("silo_local", True), ("silo_local", False), ("secagg", True), ("secagg", False))
    ]
    assert kappas == [4.0, 2.0, 4.0, 4.0]  # where too few send, those who are there send later in any case


@pytest.mark.parametrize(
    ("argument", "how"),
    [
        ("rate", dict(rate=[0.1, 0.2])),
        ("rate", dict(rate=0.1, schedule=np.zeros((2, M), bool))),
        ("schedule", dict(schedule=[[1] + [0] * (M - 1)])),
        ("schedule", dict(schedule=np.zeros((2, M - 1), bool))),
    ],
)
def test_who_is_away_is_said_once_for_every_silo(argument, how):
    with refused(argument):
        fb.envs.dropout(world().env, **how)
