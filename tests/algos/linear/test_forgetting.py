"""Policies that forget: what the policy within is shown, and parts that are put in later."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from helpers import Told, refused, workload

import fedbandit_jax as fb
from fedbandit_jax.interfaces import NoiseLaw, Released, certify

Forgetting, UCB, Discounted = fb.algos.Forgetting, fb.algos.UCB, fb.privacy.Discounted
BUDGET = fb.privacy.Budget(1.0, 0.1)
SILOS = fb.envs.sphere(4, 2, 3, rewards="bernoulli")


def test_the_policy_within_is_shown_weighted_sums():
    """Of releases that anybody may make up, with its own count, for k = 0, 1, ..."""
    memory, n, d = Discounted(0.7), 8, 3
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
        indices = policy.indices(jax.random.key(0), jnp.int32(50), prepared, offered)
        return indices.T, scorer.worth(list(jnp.moveaxis(contexts, -1, 0)))

    np.testing.assert_allclose(*scored(belief, contexts), rtol=1e-5)


class Leaky(Discounted):
    def add(self, state, batch):
        jax.debug.callback(print, batch)
        return super().add(state, batch)


def test_parts_that_are_put_in_after_binding_are_seen():
    """A policy that scores all users at once, and a memory that calls the host."""
    algo = fb.algos.Federated(policy=Forgetting(policy=UCB(), memory=Discounted(0.7)), schedule=2, privacy=BUDGET)
    bound = algo.bind(SILOS.spec, 20)
    assert certify(bound).claim == "certified"
    within, nosy = bound.policy.policy, type("Nosy", (type(bound.policy.policy),), {})
    nosy.indices = lambda self, key, t, prepared, offered: (
        offered.contexts.sum() + within.indices(key, t, prepared, offered)
    )
    for name, part in (("policy", fb.pytree(nosy)(**vars(within))), ("memory", Leaky(0.7))):
        forged = dataclasses.replace(bound, policy=dataclasses.replace(bound.policy, **{name: part}))
        assert certify(forged).claim == "none"
    with refused("memory"):
        Forgetting(policy=UCB(), memory=Leaky(0.7))
