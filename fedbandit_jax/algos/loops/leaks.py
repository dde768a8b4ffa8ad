"""Accesses of a policy to raw data besides the mechanism's releases, found by its class and a trace."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fedbandit_jax.certificate import Raw
from fedbandit_jax.core import struct
from fedbandit_jax.core.programs import call, need_numbers, refusal
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.interfaces import Policy, Released, Spec

LEARNS_IN_BATCH = Raw(
    claim="as_printed",
    why="holds for sequences (x_t, y_t) that differ in one entry, if the actions of all other users stay fixed; but "
    "replacing a user also changes later actions of the same batch (the batch cascade): set learns_in_batch=False "
    "to cover that",
    seen="actions inside a batch, which use raw statistics",
)

SCORES_TOGETHER = Raw(
    why="the policy scores the users of all agents at once (it overrides `indices` or `prepare`), so one user's "
    "recommendation may depend on the contexts of others",
    seen="recommendations to other users of the same round",
)

CALLS_HOST = Raw(
    why="the policy calls the host, so its arms may depend on anything",
    seen="all data that the policy exchanges with the host",
)

LEARNS_TOGETHER = Raw(
    why="a user-defined policy learns inside the batch, from the raw rewards of the users of all silos",
    seen="actions inside a batch, which use raw statistics of all silos",
)


def policy_leaks(policy: Policy, spec: Spec, learns_in_batch: bool, batch: int | None) -> tuple[Raw, ...]:
    """Returns the accesses to raw data of a policy that learns within batches of B = `batch` rounds.

    A sealed policy has none. Neither has a user-defined policy that defines `start`, `update` and `index` alone, if a
    trace shows no side effects. At the end of a batch agents forget what they learned in it. With B = 1 no other user
    arrives before that.
    """
    if struct.is_sealed(policy):
        rule = getattr(policy, "rule", None)
        foreign = rule is not None and not struct.is_sealed(rule)
        return (*[CALLS_HOST] * foreign, *[LEARNS_IN_BATCH] * (learns_in_batch and batch != 1))
    kind = type(policy)
    scores = any(getattr(kind, name) is not getattr(Policy, name) for name in ("indices", "prepare"))
    return (
        *[SCORES_TOGETHER] * scores,
        *[CALLS_HOST] * bool(_leak(policy, spec)),
        *[LEARNS_TOGETHER] * learns_in_batch,
    )


def check_policy(policy: Policy, spec: Spec) -> None:
    """Traces a user-defined policy, without compilation.

    Raises:
        TypeError: it lacks a method or holds non-numbers, or a method calls the host.
    """
    kind = type(policy)
    need_numbers("policy", policy)
    scores = kind.index is not Policy.index or kind.indices is not Policy.indices
    for name, there in (("update", kind.update is not Policy.update), ("index", scores)):
        if not there:
            must, got = f"must have the method {name}, see fb.Policy", f"{kind.__name__} without it"
            raise BadType("policy", must, kind.__name__, got=got)
    if not struct.is_sealed(policy) and (found := _leak(policy, spec)):
        raise found


def _leak(policy: Policy, spec: Spec) -> BadType | None:
    dim = spec.dim
    nothing = Released(jnp.zeros((dim, dim)), jnp.zeros(dim), jnp.float32(0), jnp.float32(0))
    known = (leaf for leaf in jax.tree.leaves(policy) if not isinstance(leaf, Tracer))
    if any(np.asarray(leaf).dtype.kind in "OUS" for leaf in known):
        return BadType("policy", "must be a pytree of numbers", policy)
    default = type(policy).start is Policy.start
    try:
        found = refusal(policy, "update" if default else "start", lambda policy: policy.start(dim))
    except TypeError as error:
        if default:
            error.add_note("At first its belief is None: if update reads it, define start(dim)")
        raise
    if found:
        return found
    belief = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, call(policy, "start", dim)))
    belief = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), belief)
    if found := refusal(policy, "update", lambda policy, *given: policy.update(*given), jnp.int32(0), belief, nothing):
        return found
    if type(policy).indices is not Policy.indices or type(policy).prepare is not Policy.prepare:
        return None  # reported as `SCORES_TOGETHER`
    users = jax.random.key(0), jnp.int32(0), belief, jnp.zeros((spec.n_arms, dim))
    return refusal(policy, "index", lambda policy, *given: policy.index(*given), *users)
