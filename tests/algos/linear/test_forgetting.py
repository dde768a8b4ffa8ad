"""Policies that forget: what the policy within is shown, D-LinUCB by NumPy, limits, claims and refusals."""

import dataclasses
import math

import examples as ex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refused, regrets, workload

import fedbandit_jax as fb
from fedbandit_jax.interfaces import NoiseLaw, Released, certify
from fedbandit_jax.privacy.releases import make

Forgetting, UCB, Discounted, Window = fb.algos.Forgetting, fb.algos.UCB, fb.privacy.Discounted, fb.privacy.Window
BUDGET = fb.privacy.Budget(1.0, 0.1)
MEMORIES = {"discounted": Discounted(0.7), "window": Window(3)}
SILOS = fb.envs.sphere(4, 2, 3, rewards="bernoulli")


@fb.pytree
class Told(fb.Policy):
    """Believes what it is shown: k, the count, W and U."""

    def start(self, dim):
        return jnp.zeros(2 + dim * (dim + 1))

    def update(self, k, belief, released):
        told = jnp.stack([jnp.float32(k), released.count])
        return jnp.concatenate([told, released.gram.ravel(), released.bias])

    def index(self, key, t, belief, contexts):
        return contexts[:, 0] + 0 * t


@pytest.mark.parametrize("name", MEMORIES)
def test_the_policy_within_is_shown_weighted_sums(name):
    """Of releases that anybody may make up, with its own count, for k = 0, 1, ..."""
    memory, n, d = MEMORIES[name], 8, 3
    rng = np.random.default_rng(0)
    batches, counts = rng.normal(size=(n, d, d + 1)), rng.integers(1, 9, n).astype(float)
    policy = Forgetting(policy=Told(), memory=memory).bind(NoiseLaw(2, d, np.zeros(n)))
    belief, update = policy.start(d), jax.jit(policy.update)
    for k in range(n):
        sums = batches[: k + 1].sum(0).astype(np.float32)
        released = Released(sums[:, :-1], sums[:, -1], np.float32(counts[: k + 1].sum()), np.float32(0))
        belief = update(np.int32(k), belief, released)
        a = workload(memory, n)[k]
        w = np.tensordot(a, batches, 1)
        np.testing.assert_allclose(belief.within[2:], [*w[:, :-1].ravel(), *w[:, -1]], atol=1e-5)
        np.testing.assert_allclose(belief.within[:2], [k, a @ counts], rtol=1e-5)
        assert int(belief.rounds) == math.ceil(round(a @ counts / 2, 4))  # of two agents


def test_d_lin_ucb_by_numpy(script, key):
    """Russac et al. (2019), Algorithm 1, in batches of 3, on the script; widths as the docstring says."""
    env, batch, horizon, d = script, 3, 30, script.spec.dim
    memory, m, n = Discounted(0.8), script.spec.n_agents, 10
    policy = Forgetting(policy=UCB(exploration_scale=0.4), memory=memory)
    algo = fb.algos.Federated(policy=policy, schedule=batch)
    found = regrets(env, algo.bind(env.spec, horizon), horizon, key)
    v, u, expected, rounds = np.zeros((d, d)), np.zeros(d), np.zeros(horizon), 0.0
    new_v, new_u = np.zeros((d, d)), np.zeros(d)
    for t in range(horizon):
        inverse = np.linalg.inv(np.eye(d) + v)
        log_term = 2 * math.log(n / 0.01) + d * math.log1p(m * math.ceil(rounds) / d)
        beta = 0.4 * (1.0 + 0.5 * math.sqrt(log_term))
        for i in range(m):
            x = np.asarray(env.contexts[t, i], float)
            bound = x @ inverse @ u + beta * np.sqrt(((x @ inverse) * x).sum(1))
            arm = int(bound.argmax())
            expected[t] += env.means[t, i].max() - env.means[t, i, arm]
            new_v += np.outer(x[arm], x[arm])
            new_u += x[arm] * env.answers[t, i, arm]
        if t % batch == batch - 1:
            v, u, rounds = 0.8 * v + new_v, 0.8 * u + new_u, 0.8 * rounds + batch
            new_v, new_u = np.zeros((d, d)), np.zeros(d)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_arms_are_scored_alike_with_and_without_contexts():
    """`scorer` has the width of `indices`, that of the weighted number of rounds, whatever the round is."""
    policy = Forgetting(policy=UCB(), memory=Discounted(0.5)).bind(NoiseLaw(4, 3, np.zeros(5)))
    belief, update = policy.start(3), jax.jit(policy.update)
    for k in range(5):
        sums = np.float32((k + 1) * np.eye(3)), np.ones(3, np.float32), np.float32(40 * (k + 1)), np.float32(0)
        belief = update(np.int32(k), belief, Released(*sums))
    offered = fb.Round(jnp.asarray(np.random.default_rng(0).normal(size=(4, 2, 3)), jnp.float32))
    prepared = policy.prepare(belief, offered, False)
    indices = policy.indices(jax.random.key(0), jnp.int32(50), prepared, offered)
    scorer = policy.scorer(jnp.int32(50), prepared)
    rounds = math.ceil(10 * sum(0.5**j for j in range(5)))
    np.testing.assert_allclose(scorer.width, policy.policy.scorer(jnp.int32(rounds), prepared.within).width)
    np.testing.assert_allclose(indices.T, scorer.worth(list(jnp.moveaxis(offered.contexts, -1, 0))), rtol=1e-5)


@pytest.mark.slow
def test_a_window_over_everything_forgets_nothing():
    algo = fb.algos.Federated(policy=ex.GREEDY, schedule=6)
    forgets = algo.replace(policy=Forgetting(policy=ex.GREEDY, memory=Window(7)))
    one, other = (ex.play(ex.SCRIPT, a).gaps for a in (algo, forgets))
    np.testing.assert_allclose(one, other, atol=2e-5)


WITHIN = UCB(confidence="known_noise")
ANY = {
    "Told": dict(policy=Told()),
    "secagg": dict(trust="secagg"),
    "users": dict(unit=fb.privacy.Users(3, per_batch=1, apart=2)),
    "shuffled": dict(trust="shuffle_amplified", release="tree"),
}


@pytest.mark.parametrize("name", ANY)
def test_it_is_certified_with_any_policy_trust_model_and_unit(name):
    options = {"policy": WITHIN, "release": Discounted(0.7), **ANY[name]}
    policy = Forgetting(policy=options.pop("policy"), memory=Discounted(0.7))
    algo = fb.algos.Federated(policy=policy, schedule=2, privacy=fb.privacy.Mechanism(BUDGET, **options))
    found = algo.certificate(SILOS.spec, 20)
    assert (found.claim, found.release) == ("certified", "Tree" if name == "shuffled" else "Discounted")
    assert 0.99 < found.epsilon_exact <= 1.0
    assert found.releases_per_user < 9


@pytest.mark.parametrize("release", ["tree", "blt", Discounted(0.5), Window(2)])
def test_it_knows_the_noise_under_any_release(release):
    memory = Discounted(0.7)
    algo = fb.algos.Federated(
        policy=Forgetting(policy=UCB(), memory=memory), schedule=2, privacy=fb.privacy.Mechanism(BUDGET, release)
    )
    bound, made = algo.bind(SILOS.spec, 20), make(release, 10)
    wanted = bound.stds[:10] * np.sqrt(memory.variance(made) / made.prefix_variance())
    np.testing.assert_allclose(bound.policy.stds[:10], wanted, rtol=1e-5)


def test_a_policy_that_is_put_in_after_binding_is_seen():
    memory = Discounted(0.7)
    algo = fb.algos.Federated(policy=Forgetting(policy=UCB(), memory=memory), schedule=2, privacy=BUDGET)
    bound = algo.bind(SILOS.spec, 20)
    assert certify(bound).claim == "certified"

    @fb.pytree
    class Nosy(type(bound.policy.policy)):
        def indices(self, key, t, prepared, offered):
            return offered.contexts.sum() + super().indices(key, t, prepared, offered)

    mine = Nosy(**{f.name: getattr(bound.policy.policy, f.name) for f in dataclasses.fields(bound.policy.policy)})

    class Leaky(Discounted):
        def add(self, state, batch):
            jax.debug.callback(print, batch)
            return super().add(state, batch)

    for name, part in (("policy", mine), ("memory", Leaky(0.7))):
        forged = dataclasses.replace(bound, policy=dataclasses.replace(bound.policy, **{name: part}))
        assert certify(forged).claim == "none"
    with refused("memory"):
        Forgetting(policy=UCB(), memory=Leaky(0.7))


@pytest.mark.slow
def test_after_a_change_it_is_better_to_forget(key):
    """Regret of 32 seeds after the change, paired: less by more than five standard errors."""
    env = fb.envs.drift(fb.envs.sphere(10, 10, 4, rewards="bernoulli"), (400,))
    plain = fb.algos.Federated(policy=UCB(exploration_scale=0.3), schedule=10)
    forgets = plain.replace(policy=Forgetting(policy=UCB(exploration_scale=0.3), memory=Discounted(0.8)))
    options = dict(horizon=800, key=jax.random.key(5), seeds=32)
    one, other = (fb.simulate(env, algo, **options).regret for algo in (plain, forgets))
    late = (one[:, -1] - one[:, 399]) - (other[:, -1] - other[:, 399])
    assert late.mean() > 5 * late.std(ddof=1) / 32**0.5
