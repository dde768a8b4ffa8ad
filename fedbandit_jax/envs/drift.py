"""Non-stationary environments: theta* is redrawn at known rounds, or turns slowly between them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int, Key, UInt32
from typing_extensions import override

from fedbandit_jax.core import random, struct, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.envs._arrivals import session
from fedbandit_jax.envs._wrapper import Wrapper, wrapped_spec
from fedbandit_jax.interfaces import Feedback, Round

HOW = ("jump", "slide")
LAST = 2**31 - 1  # rounds are int32
MOST = 10_000  # most listed rounds


class Moving(NamedTuple):
    """Instance of one seed in one round."""

    key: UInt32[Array, " 2"]  # words of the key of all worlds of the seed
    piece: Int[Array, ""]  # number of changes so far
    now: Any  # this round's world of the wrapped environment


@struct.pytree
class Drift(Wrapper):
    """An environment with a changing world; made by `drift`."""

    changes: Int[Array | np.ndarray, " N"] | Int[Array | np.ndarray, ""]  # `when`
    how: str = struct.static()  # one of `HOW`

    @override
    def init(self, key: Key[Array, ""]) -> Moving:
        return Moving(jax.random.key_data(key), jnp.int32(0), self.env.init(key))

    @override
    def observe(self, key: Key[Array, ""], world: Moving, t: Int[Array, ""]) -> tuple[Round, Moving]:
        piece, share = self._place(jnp.asarray(t, jnp.int32))
        now = self._world(world.key, piece)
        if self.how == "slide":
            now = self.env.between(now, self._world(world.key, piece + 1), share)
        else:
            now = jax.tree.map(lambda new, old: jnp.where(piece == world.piece, old, new), now, world.now)
        offered, now = self.env.observe(key, now, t)
        return offered, Moving(world.key, piece, now)

    @override
    def pull(self, key: Key[Array, ""], world: Moving, offered: Round, arms: Int[Array, " M"]) -> Feedback:
        return self.env.pull(key, world.now, offered, arms)

    def _world(self, key: Array, piece: Array) -> Any:
        stream = random.stream(jax.random.wrap_key_data(key), "drift")
        later = jax.random.key_data(jax.random.fold_in(stream, piece))
        return self.env.init(jax.random.wrap_key_data(jnp.where(piece == 0, key, later)))

    def _place(self, t: Array) -> tuple[Array, Array]:
        """Returns the number of changes up to round t, and the share of the way to the next one."""
        changes = jnp.asarray(self.changes)
        if not changes.ndim:
            return t // changes, (t % changes) / changes
        edges = jnp.concatenate([jnp.zeros(1, jnp.int32), changes, jnp.full(1, LAST)])
        done = jnp.searchsorted(changes, t, side="right").astype(jnp.int32)
        share = (t - edges[done]) / (edges[done + 1] - edges[done])
        return done, jnp.where(done < len(changes), share, 0)


def drift(env: Any, when: int | tuple[int, ...], how: str = "jump") -> Drift:
    """Wraps an environment with a changing world; each new one is drawn like the first.

    A world is what a seed draws once: theta*, means of arms, and fixed contexts. Users, offers and reward noise have
    their own streams, and stay the same. Regret is to the best arm in the round's world.

    Args:
        env: an environment with a random world.
        when: rounds that begin with a new world: an integer n, every n-th round; or a tuple of increasing rounds > 0.
        how: "jump" switches to the new world at once. "slide" turns theta* evenly towards the next one, from one such
            round to the next, with the environment's law of theta* in every round. After the last round of a tuple
            theta* stays. It needs `sphere` or `gap` with fresh contexts.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.drift(fb.envs.sphere(n_agents=3, n_arms=5, dim=4), when=100)
        >>> world = env.init(jax.random.key(1))
        >>> later = [env.observe(jax.random.key(0), world, jax.numpy.int32(t))[1].now for t in (99, 100, 199)]
        >>> [bool((a.theta == b.theta).all()) for a, b in zip([world.now, *later], later)]
        [True, False, True]

    Reference: Russac, Vernade & Cappé (2019), Section 5, for abrupt and for slow changes of a linear bandit.
    """
    spec = wrapped_spec(env, clusters=False)
    if (stays := session(env)) > 1:
        must = f"must not have users who stay: wrap the drifting environment by fb.envs.returning(..., session={stays})"
        raise BadValue("env", must, env, got=type(env).__name__, others=("session",))
    validate.one_of("how", how, HOW)
    changes = _rounds(when)
    if how == "slide" and (not callable(getattr(env, "between", None)) or spec.fixed_contexts):
        must = "must be 'jump' unless env is fb.envs.sphere(...) or fb.envs.gap(...) with fresh contexts"
        raise BadValue("how", must, env, got=f"'slide' and {type(env).__name__}")

    @jax.jit
    def stays_the_same() -> Array:
        one, other = (jax.tree.leaves(env.init(jax.random.key(seed))) for seed in range(2))
        return jnp.array([jnp.all(a == b) for a, b in zip(one, other)]).all()

    if stays_the_same():
        raise BadValue("env", "must draw its world at random, but it is equal for every seed", env, got="")
    return Drift(env=env, changes=changes, how=how, spec=dataclasses.replace(spec, fixed_contexts=False))


def _rounds(when: Any) -> np.ndarray:
    if isinstance(when, (tuple, list)):
        rounds = [validate.integer("when", one, at_least=1, at_most=LAST - 1) for one in when]
        if not rounds or len(rounds) > MOST or any(b <= a for a, b in itertools.pairwise(rounds)):
            raise BadValue("when", f"must be an integer, or 1 to {MOST:,} increasing rounds", when)
        return np.array(rounds, np.int32)
    return np.array(validate.integer("when", when, at_least=1, at_most=LAST - 1), np.int32)
