"""Policies that forget: what the policy within is shown, D-LinUCB by NumPy, limits, claims and refusals."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Told, refused, regrets, workload
from oracles import linear as oracles

import fedbandit_jax as fb
from fedbandit_jax.interfaces import NoiseLaw, Released, certify

Forgetting, UCB, Discounted, Window = fb.algos.Forgetting, fb.algos.UCB, fb.privacy.Discounted, fb.privacy.Window
BUDGET = fb.privacy.Budget(1.0, 0.1)
MEMORIES = {"discounted": Discounted(0.7), "window": Window(3)}
SILOS = fb.envs.sphere(4, 2, 3, rewards="bernoulli")


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
        np.testing.assert_allclose(belief.within[4:], [*w[:, :-1].ravel(), *w[:, -1]], atol=1e-5)
        np.testing.assert_allclose(belief.within[:2], [k, a @ counts], rtol=1e-5)
        assert int(belief.rounds) == math.ceil(round(a @ counts / 2, 4))  # of two agents


class Discounts(oracles.Batches):
    def release(self, k, gamma, noise):
        self.total = 0.8 * self.total + gamma
        return self.total


def test_d_lin_ucb_by_numpy(script, key):
    """Russac et al. (2019), Algorithm 1, in batches of 3, on the script; widths as the docstring says."""
    batch, horizon, d, m, n = 3, 30, script.spec.dim, script.spec.n_agents, 10
    policy = Forgetting(policy=UCB(exploration_scale=0.4), memory=Discounted(0.8))
    algo = fb.algos.Federated(policy=policy, schedule=batch)
    found = regrets(script, algo.bind(script.spec, horizon), horizon, key)

    def choose(t, i, contexts, v, u):
        rounds = batch * sum(0.8**j for j in range(t // batch))
        log_term = 2 * math.log(n / 0.01) + d * math.log1p(m * math.ceil(rounds) / d)
        return oracles.argmax_ucb(contexts, v, u, 0.4 * (1.0 + 0.5 * math.sqrt(log_term)))

    expected, *_ = oracles.scheduled(
        script, horizon, choose, lambda t, *_: t % batch == batch - 1, first=1.0, later=1.0, learns=False,
        silo=Discounts(),
    )  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_arms_are_scored_alike_with_and_without_contexts():
    """`scorer` has the width of `indices`, that of the weighted number of rounds, whatever the round is."""
    policy = Forgetting(policy=UCB(), memory=Discounted(0.5)).bind(NoiseLaw(4, 3, np.zeros(5)))
    belief, update = policy.start(3), jax.jit(policy.update)
    for k in range(5):
        sums = np.float32((k + 1) * np.eye(3)), np.ones(3, np.float32), np.float32(40 * (k + 1)), np.float32(0)
        belief = update(np.int32(k), belief, Released(*sums))
    contexts = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)

    @jax.jit
    def scored(belief, contexts):
        offered = fb.Round(contexts)
        prepared = policy.prepare(belief, offered, False)
        scorer = policy.scorer(jnp.int32(50), prepared)
        rounds = jnp.int32(math.ceil(10 * sum(0.5**j for j in range(5))))
        widths = scorer.width, policy.policy.scorer(rounds, prepared.within).width
        indices = policy.indices(jax.random.key(0), jnp.int32(50), prepared, offered)
        return widths, (indices.T, scorer.worth(list(jnp.moveaxis(contexts, -1, 0))))

    for one, other in scored(belief, contexts):
        np.testing.assert_allclose(one, other, rtol=1e-5)


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
