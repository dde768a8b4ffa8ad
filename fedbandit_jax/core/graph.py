"""Connected components of a graph that is given by the smallest label among the neighbours of each node."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import control


def components(smallest: Callable[[Array], Array], n: int) -> Array:
    """Computes connected components by hooking and pointer jumping.

    In every sweep each tree hooks its root to the smallest label that any of its nodes sees, then all nodes point to
    their roots. Most graphs take O(log n) sweeps.

    Args:
        smallest: maps labels (n,) to the smallest label among the neighbours of each node, n or more where a node has
            no neighbours.
        n: number of nodes, static.

    Returns:
        The smallest node of every node's component, (n,) int32.

    >>> linked = jnp.array([[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]], bool)
    >>> components(smallest_neighbour(linked), 4).tolist()
    [0, 1, 1, 0]
    """

    def sweep(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        label, _ = carry
        seen = jnp.minimum(label, smallest(label))
        hooked = label.at[label].min(seen)  # any node of a tree may hook its root
        hooked = jnp.minimum(hooked, seen)
        jumped = hooked[hooked]
        return jumped, (jumped != label).any()

    start = jnp.arange(n, dtype=jnp.int32)
    return lax.while_loop(lambda carry: control.in_any_lane(carry[1]), sweep, (start, jnp.bool_(True)))[0]


def smallest_neighbour(linked: Array) -> Callable[[Array], Array]:
    """Returns the argument `smallest` of `components` for a symmetric adjacency matrix `linked`, (n, n) bool."""
    return lambda label: jnp.where(linked, label[None, :], len(linked)).min(1)
