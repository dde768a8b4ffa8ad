"""Policies that forget: what the policy within is shown, D-LinUCB by NumPy, limits, claims and refusals."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from helpers import Told, refused, workload

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
