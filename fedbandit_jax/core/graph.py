"""Connected components of a graph whose edges are known by what a node sees."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from fedbandit_jax.core import control


def components(smallest: Callable[[Array], Array], n: int) -> Array:
    """The smallest node of every node's component, (n,) int32, by hooking and pointer jumping.

    Every tree hooks its root to the smallest label that any of its nodes sees, then all nodes point to their roots:
    O(log n) sweeps for most graphs.

    Args:
        smallest: labels (n,) -> the smallest label among the neighbours of each node, n or more where it has none.
        n: static.

    >>> linked = jnp.array([[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]], bool)
    >>> components(smallest_neighbour(linked), 4).tolist()
    [0, 1, 1, 0]
    """

    def sweep(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        label, _ = carry
        seen = jnp.minimum(label, smallest(label))
        hooked = label.at[label].min(seen)  # a root may be told by any of its nodes
        hooked = jnp.minimum(hooked, seen)
        jumped = hooked[hooked]
        return jumped, (jumped != label).any()

    start = jnp.arange(n, dtype=jnp.int32)
    return lax.while_loop(lambda carry: control.in_any_lane(carry[1]), sweep, (start, jnp.bool_(True)))[0]


def smallest_neighbour(linked: Array) -> Callable[[Array], Array]:
    """Of a symmetric adjacency matrix (n, n) bool."""
    return lambda label: jnp.where(linked, label[None, :], len(linked)).min(1)
