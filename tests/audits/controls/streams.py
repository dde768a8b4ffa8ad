"""Streams of users whose noise is wrong, or missing, or not drawn for what it is added to."""

from dataclasses import replace

import jax
import jax.numpy as jnp

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.streams import BoundGrouped
from fedbandit_jax.audits import streams
from fedbandit_jax.core import struct

BUDGET = fb.privacy.Budget(1.0, 1e-5)
ALGO = fb.algos.Grouped(
    grouping=fb.algos.Mixture(max_groups=2, tries=1),
    schedule=fb.schedules.Geometric(1.5, first=2),
    privacy=fb.privacy.Mechanism(BUDGET, release="blt", unit="visit"),
)


@struct.pytree
class Flawed(BoundGrouped):
    """Streams with these flaws, each of which is a number, so that all share a program."""

    shared: bool = False  # all users have the same noise
    replayed: bool = False  # every release has the noise of the first
    raw: bool = False  # groups are found from sums without noise

    def _release(self, key, state):
        key = jax.random.wrap_key_data(
            jnp.where(self.replayed, jax.random.key_data(jax.random.key(0)), jax.random.key_data(key))
        )
        new = BoundGrouped._release(self, key, state)
        view = jnp.where(self.shared, new.streams.view - new.streams.sums.high, 0)
        view = new.streams.view - view + view[:1]
        exact = jnp.asarray(new.streams.sums.high[..., 0, -1] > 0, jnp.int32)
        label = jnp.where(self.raw, exact, new.label)
        return new._replace(streams=new.streams._replace(view=view), label=label)


def flawed(name, **flaws):
    """A case of streams with these flaws, under the claim of sound ones."""
    case = streams(ALGO, name=name)
    bound = case.mechanism.algo
    fields = {field: getattr(bound, field) for field in bound.__dataclass_fields__}
    return replace(case, mechanism=replace(case.mechanism, algo=Flawed(**fields, **flaws)))


def broken_one_noise_for_all_users():
    """One draw for all users: the difference of two users' releases has no noise."""
    return flawed("one noise for all users", shared=True)


def broken_noise_of_a_fixed_key():
    """The same noise in every release of every run."""
    return flawed("noise of a fixed key", replayed=True)


def broken_groups_from_raw_sums():
    """Who is alike is found before noise is added."""
    return flawed("groups from raw sums", raw=True)


def broken_scale():
    """Half of the noise."""
    case = streams(ALGO, name="half of the noise")
    bound = case.mechanism.algo
    trust = replace(bound.mechanism.trust, std=bound.mechanism.trust.std / 2)
    algo = replace(bound, mechanism=replace(bound.mechanism, trust=trust))
    return replace(case, mechanism=replace(case.mechanism, algo=algo))
