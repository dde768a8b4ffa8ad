"""Rewards that come late: when they arrive, in which batch they enter, and what is proved."""

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import by_batches, silent, within_ball

import fedbandit_jax as fb
from fedbandit_jax.envs._wrapper import Wrapper

A, P, S = fb.algos, fb.privacy, fb.schedules
M, T, D, B, L = 3, 24, 2, 4, 5
GROWING = S.Geometric(1.5, first=2)
BUDGET = P.Budget(8.0, 0.1)


def waits(env, rounds):
    """The rounds after which rewards arrive, of every silo, by what the environment says arrives."""
    keys, found, waiting = jax.random.split(jax.random.key(0), rounds), [], {}
    world = env.init(jax.random.key(1))
    places = jax.jit(jax.vmap(lambda key, t: env.observe(key, world, t)[0].arrives))(keys, jnp.arange(rounds))
    for t, row in enumerate(np.asarray(places)):
        for i, place in enumerate(row):
            if (i, place) in waiting:
                found.append(t - waiting[i, place])
            waiting[i, place] = t
    return np.array(found), np.asarray(places)


def test_laws_of_delays():
    """All after L rounds; or after 1, 2, ... with the geometric law, silo by silo, to five standard errors."""
    inner, n = fb.envs.sphere(M, 2, 3), 4000
    assert set(waits(fb.envs.delay(inner, L), 40)[0]) == {L}
    found, places = waits(fb.envs.delay(inner, L, "geometric"), n)
    share, count = 1 / L, len(found)
    for k in (1, 2, 5):
        p = share * (1 - share) ** (k - 1)
        assert np.mean(found == k) == pytest.approx(p, abs=5 * (p / count) ** 0.5)
    assert found.mean() == pytest.approx(L, abs=5 * L / count**0.5)
    assert np.mean(places[:, 0] == places[:, 1]) == pytest.approx(share, abs=5 * (share / n) ** 0.5)


def world(law, seed=0, users=False):
    rng = np.random.default_rng(seed)
    x = within_ball(rng, (T, M, 1, D), 0.2)
    who = rng.choice(3, (T, M)) if users else None
    return fb.envs.delay(fb.envs.script(x, rng.uniform(0, 1, (T, M, 1)), users=who), L, law)


def played(algo, env, key):
    """The bound algorithm and the states of its mechanism after every batch; what arrived in every round."""
    bound, keys = silent(algo.bind(env.spec, T)), jax.random.split(key, T)
    offers = [env.observe(keys[t], None, t)[0] for t in range(T)]
    states = [state.ledger.mechanism for state, _ in by_batches(bound, offers, env.env.answers, key)]
    return bound, states, [np.asarray(offer.arrives) for offer in offers]


@pytest.mark.parametrize(("schedule", "law"), [(B, "geometric"), (GROWING, "geometric")])
def test_rewards_enter_the_batch_in_which_they_arrive(key, schedule, law):
    env = world(law)
    algo = A.Federated(policy=A.Greedy(), schedule=schedule, privacy=P.Mechanism(BUDGET, "blt"))
    bound, states, places = played(algo, env, key)
    ends = np.arange(B, T + 1, B) if schedule == B else np.asarray(schedule.rounds(T))
    x, y = env.env.contexts[:, :, 0], env.env.answers[..., 0]
    waiting, total, sums = {}, np.zeros((D, D + 1)), []
    for t in range(T):
        for i in range(M):
            came = waiting.get((i, places[t][i]))
            if came is not None:
                row = x[came, i]
                total = total + np.outer(row, np.append(row, y[came, i]))
            waiting[i, places[t][i]] = t
        if t + 1 in ends:
            sums.append(total)
    found = [states[end // bound.batch - 1].sums.high for end in ends]
    np.testing.assert_allclose(found, sums, atol=2e-5)
    assert np.abs(sums[-1]).max() > 1


def test_users_are_counted_when_their_rewards_arrive(key):
    """Of users who may contribute once, the first reward that arrives enters, whoever came in between."""
    env = world("fixed", users=True)
    privacy = P.Mechanism(BUDGET, "blt", unit=P.Users(1))
    _, states, _ = played(A.Federated(policy=A.Greedy(), schedule=B, privacy=privacy), env, key)
    x, y, users = env.env.contexts[:, :, 0], env.env.answers[..., 0], env.env.users
    total = np.zeros((D, D + 1))
    for i in range(M):
        for user in range(3):
            came = np.flatnonzero(users[: T - L, i] == user)
            if len(came):
                row = x[came[0], i]
                total += np.outer(row, np.append(row, y[came[0], i]))
    np.testing.assert_allclose(states[-1].sums.high, total, atol=2e-5)


def test_certificates_say_what_is_assumed():
    algo = A.Federated(policy=A.Greedy(), schedule=B, privacy=P.Mechanism(BUDGET, "blt", "secagg"))
    late = algo.certificate(world("fixed").spec, T)
    assert late.claim == "certified"
    assert "when a reward arrives, which must be independent of it" in late.not_covered


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
