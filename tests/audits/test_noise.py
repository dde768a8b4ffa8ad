"""The law of noise by millions of its draws: what hides in the tails, or happens once in a thousand runs."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest

import fedbandit_jax as fb
from fedbandit_jax import audits
from fedbandit_jax.audits import noise
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.trust import Central

BUDGET = fb.privacy.Budget(8.0, 1e-6)


@fb.pytree
class Odd(Central):
    """Noise of one of these laws, each of which has the right variance to a thousandth."""

    law: int

    def noise(self, key, size):
        honest = Central.noise(self, key, size)
        laws = {
            "honest": honest,
            "few bits": self.std * jax.scipy.special.ndtri((jax.random.bits(key, (size,)) >> 11) / 2**21 + 2.0**-22),
            "once": jnp.where(jax.random.uniform(jax.random.fold_in(key, 1)) < 1e-3, 0, honest),
            "half": honest.astype(jnp.float16).astype(jnp.float32),
            "mixed": honest * jnp.where(jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, (size,)), 1.2, 0.75),
        }
        return jnp.stack(list(laws.values()))[self.law]


SEEN = {
    0: "",
    1: "its noise repeats .* values beyond 4 standard deviations in .*",
    2: "its noise takes the value 0, in standard deviations, .* times in .*",
    3: "its noise takes the value .* times in .*",
    4: "its noise is beyond 1 standard deviations .* times, a normal law .*",
}


@pytest.mark.parametrize("law", SEEN)
def test_the_law_of_noise(key, law, monkeypatch):
    """With a quarter of the draws, and 21 bits of noise; those of float32 normals are a control of audits."""
    monkeypatch.setattr(noise, "DRAWS", 2**19)
    bound = fb.privacy.Mechanism(BUDGET, trust="central").bind(BoundStatistic(2), n_agents=2, n_syncs=4, batch=2)
    trust = Odd(**{field.name: getattr(bound.trust, field.name) for field in dataclasses.fields(bound.trust)}, law=law)
    found = noise.odd(dataclasses.replace(bound, trust=trust), key)
    assert re.fullmatch(SEEN[law], found), found


def test_a_claim_must_be_refuted_twice(key):
    """At 95 %, and then under another key at 99.9 %: the second one decides."""

    def laplace(key, x):
        return x + jax.random.laplace(key)

    claim = audits.Case(name="a", mechanism=laplace, data=0.0, neighbour=1.0, epsilon=1.0, delta=1e-6)
    true, false = claim, dataclasses.replace(claim, epsilon=0.5)
    assert [case.run(key, n_runs=4000).confidence for case in (true, false)] == [0.95, 0.999]
    found = false.run(key, n_runs=4000)
    assert not found.passed
    assert "with confidence 0.999" in found.reasons[0]
    assert false.run(key, n_runs=4000, confidence=0.9999).confidence == 0.9999


def test_slow_mechanisms_have_enough_runs(key):
    def gaussian(key, x):
        return x + jax.random.normal(key)

    fields = dict(data=0.0, neighbour=0.0, epsilon=1, delta=0.1)
    case = audits.Case(name="a", mechanism=gaussian, slow=100, **fields)
    assert [case.run(key, n_runs=n).n_runs for n in (2000, 20_000)] == [2000, 10_000]
