"""Streams of users whose noise is wrong, or missing, or not drawn for what it is added to."""

import jax
import jax.numpy as jnp
from _damage import changed, scaled, turned

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.grouped import BoundGrouped
from fedbandit_jax.audits import turns

ALGO = fb.algos.Grouped(
    grouping=fb.algos.Mixture(max_groups=2, tries=1),
    schedule=fb.schedules.Geometric(1.5, first=2),
    privacy=fb.privacy.Mechanism(fb.privacy.Budget(1.0, 1e-5), release="blt", unit="visit"),
)


@fb.pytree
class Flawed(BoundGrouped):
    """Streams with these flaws, each of which is a number, so that all share a program."""

    shared: bool = False  # all users have the same noise: the difference of two users' releases has none
    replayed: bool = False  # every release of every run has the noise of the first
    raw: bool = False  # groups are found from sums without noise

    def _release(self, key, state):
        key = jax.random.wrap_key_data(
            jnp.where(self.replayed, jax.random.key_data(jax.random.key(0)), jax.random.key_data(key))
        )
        new = BoundGrouped._release(self, key, state)
        streams = new.ledgers.mechanism
        view = jnp.where(self.shared, streams.view - streams.sums.high, 0)
        view = streams.view - view + view[:1]
        exact = jnp.asarray(streams.sums.high[..., 0, -1] > 0, jnp.int32)
        label = jnp.where(self.raw, exact, new.label)
        return new._replace(ledgers=new.ledgers._replace(mechanism=streams._replace(view=view)), label=label)


FLAWS = {
    "one noise for all users": lambda bound: turned(Flawed, bound, shared=True),
    "noise of a fixed key": lambda bound: turned(Flawed, bound, replayed=True),
    "groups from raw sums": lambda bound: turned(Flawed, bound, raw=True),
    "half of the noise": lambda bound: turned(Flawed, bound, mechanism=scaled(std=0.5)(bound.mechanism)),
}


def broken_streams():
    return [changed(turns(ALGO, name=name), name, change) for name, change in FLAWS.items()]
