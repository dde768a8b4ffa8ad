"""From synchronised statistics to what agents act on: a ridge estimate and its confidence width."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedbandit_jax.algos.linear._confidence import KnownNoise, LogDetWidth, Width
from fedbandit_jax.core import ridge, struct
from fedbandit_jax.core.ridge import Posterior


class Estimate(NamedTuple):
    """After a synchronisation."""

    posterior: Posterior  # A = 1
    gram: Array  # (d, d) V
    log_det: Array  # (1,) log det V
    width: Width | LogDetWidth
    ok: Array  # (1,) does the posterior exist?


def first(dim: int, regularization: struct.Number, width: Width | LogDetWidth) -> Estimate:
    """Before the first synchronisation: V = lambda I, theta = 0."""
    return _solved(jnp.zeros((dim, dim + 1)), regularization, width)


def estimate(
    k: Array,
    statistics: Array,
    *,
    regularization: struct.Number,
    width: Width | LogDetWidth,
    known_noise: KnownNoise | None = None,
    project: bool = False,
) -> Estimate:
    """From (W | U) (d, d + 1) after synchronisation k = 0, 1, ...; `known_noise` sets lambda and the width anew."""
    gram, bias = statistics[:, :-1], statistics[:, -1:]
    if project or known_noise is not None:
        values, vectors = jnp.linalg.eigh(gram)
        # Also when nothing is projected: of two LAPACK calls that do not wait for each other, jaxlib 0.10.2 may let
        # both wait for ever on two cores.
        gram = ridge.with_spectrum(jnp.maximum(values, 0) if project else values, vectors)
        if known_noise is not None:
            regularization, width = known_noise(k, values)
    return _solved(jnp.concatenate([gram, bias], 1), regularization, width)


def _solved(statistics: Array, regularization: struct.Number, width: Width | LogDetWidth) -> Estimate:
    gram = regularization * jnp.eye(len(statistics)) + statistics[:, :-1]
    posterior, log_det, ok = ridge.solve_det(gram[None], statistics[:, -1][None])
    return Estimate(posterior, gram, log_det, type(width)(*(jnp.asarray(x, jnp.float32) for x in width)), ok)


def where(ok: Array, new: Estimate, old: Estimate) -> Estimate:
    """`new` if it is ok (1,), `old` otherwise."""
    return Estimate(
        ridge.where(ok, new.posterior, old.posterior),
        jnp.where(ok[0], new.gram, old.gram),
        jnp.where(ok, new.log_det, old.log_det),
        type(new.width)(*(jnp.where(ok[0], a, b) for a, b in zip(new.width, old.width))),
        jnp.ones_like(ok),
    )
