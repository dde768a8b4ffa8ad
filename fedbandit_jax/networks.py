"""Who can talk to whom: graphs of agents, how far messages go, and the cliques that share what they learn.

Everything is prepared on the host, as NumPy arrays for the loop. G_gamma has an edge between agents at most gamma hops
apart; agents of one clique of it hear of each other within gamma rounds, as messages travel one hop a round.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np

from fedbandit_jax.core import validate

STRATEGIES = ("largest_first", "smallest_last", "connected_sequential_bfs")
SLOW_STRATEGIES = ("independent_set", "saturation_largest_first")  # a minute for 1000 agents
SLOW_UP_TO = 200  # agents


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """See `network`."""

    distances: np.ndarray  # (M, M) int, hops between agents; M where there is no path
    gamma: int
    clique: np.ndarray  # (M,) int, index of each agent's clique
    n_cliques: int  # C

    @property
    def n_agents(self) -> int:
        """M."""
        return len(self.clique)

    @property
    def sizes(self) -> np.ndarray:
        """Agents in each clique, (C,)."""
        return np.bincount(self.clique)

    @property
    def diameter(self) -> int:
        """The longest way between two agents, in hops; 0 without edges."""
        return int(self.distances[self.distances < self.n_agents].max())

    @property
    def hops(self) -> np.ndarray:
        """What one broadcast of agent i costs: messages x hops, (M,) int.

        It floods the graph and is dropped after gamma hops: every agent less than gamma hops away forwards it to all of
        its neighbours, once. Sum of deg(j) over d(i, j) < gamma.
        """
        degrees = (self.distances == 1).sum(1)
        return (self.distances < self.gamma) @ degrees


def network(graph: nx.Graph, gamma: int) -> Network:
    """Cliques of agents who hear of each other within gamma rounds, and what messages cost.

    The clique cover is a greedy colouring of the complement of G_gamma, the best of several orders of the agents. For a
    line it has the fewest cliques possible, ceil(M / (gamma + 1)); in general that is NP-hard.

    Args:
        graph: undirected, on the nodes 0 ... M - 1, M >= 2; connected, or without any edge (nobody communicates).
        gamma: hops after which a message is dropped, from 1 to the graph's diameter.

    Raises:
        ValueError, TypeError: naming the argument and what is wrong with it.

    Example:
        >>> line = network(make("line", 7), gamma=2)
        >>> line.clique, line.hops
        (array([0, 0, 0, 1, 1, 1, 2]), array([3, 5, 6, 6, 6, 5, 3]))

    Reference: Dubey & Pentland (2020), Section 4.2.
    """
    _check(graph)
    gamma = validate.integer("gamma", gamma, at_least=1)
    distances = np.full((len(graph), len(graph)), len(graph))
    for i, row in nx.all_pairs_shortest_path_length(graph):
        distances[i, list(row)] = list(row.values())
    clique = _cover(distances, gamma)
    built = Network(distances, gamma, clique, int(clique.max()) + 1)
    if gamma > max(1, built.diameter):
        raise ValueError(f"gamma must be at most the graph's diameter {built.diameter}, got {gamma}")
    return built


def _check(graph: Any) -> None:
    """An undirected simple graph on 0 ... M - 1, connected or without any edge."""
    if not isinstance(graph, nx.Graph) or graph.is_directed() or graph.is_multigraph():
        raise TypeError(f"graph must be an undirected networkx.Graph, got a {type(graph).__name__}")
    _check_n_agents(len(graph))
    strange = set(graph) - set(range(len(graph)))
    if strange:
        raise ValueError(f"graph must have the nodes 0 to {len(graph) - 1}, got {min(strange, key=repr)!r}")
    for node, _ in nx.selfloop_edges(graph):
        raise ValueError(f"graph must have no self-loops, got one at node {node}")
    parts = nx.number_connected_components(graph)
    if parts > 1 and graph.number_of_edges():
        raise ValueError(f"graph must be connected, got {parts} components: give each its own simulation")


def _check_n_agents(n_agents: Any) -> int:
    if validate.integer("n_agents", n_agents, at_least=0) < 2:
        raise ValueError(f"n_agents must be at least 2, got {n_agents}: a network of one agent has nobody to talk to")
    return int(n_agents)


def _cover(distances: np.ndarray, gamma: int) -> np.ndarray:
    """A partition of the agents into cliques of G_gamma, numbered in the order of their first agents: (M,)."""
    complement = nx.from_numpy_array(distances > gamma)
    end = distances[0].argmax()

    def sweep(*_: Any) -> list[int]:  # from one end of the graph to the other
        return np.argsort(-distances[end], kind="stable").tolist()

    strategies = [sweep, *STRATEGIES, *(SLOW_STRATEGIES if len(distances) <= SLOW_UP_TO else ())]
    colourings = [nx.greedy_color(complement, strategy) for strategy in strategies]
    best = min(colourings, key=lambda colours: max(colours.values()))
    numbers = {}
    return np.array([numbers.setdefault(best[i], len(numbers)) for i in range(len(distances))])


def _grid(m: int, seed: int) -> nx.Graph:
    rows = max(r for r in range(1, math.isqrt(m) + 1) if m % r == 0)
    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, m // rows))


def _erdos_renyi(m: int, seed: int) -> nx.Graph:
    while True:
        graph = nx.gnp_random_graph(m, min(1, 2 * math.log(m) / m), seed=seed)
        if nx.is_connected(graph):
            return graph
        seed += 1


GRAPHS: dict[str, Callable[[int, int], nx.Graph]] = {  # of n_agents and a seed
    "complete": lambda m, seed: nx.complete_graph(m),
    "ring": lambda m, seed: nx.cycle_graph(m),
    "line": lambda m, seed: nx.path_graph(m),
    "star": lambda m, seed: nx.star_graph(m - 1),
    "grid": _grid,
    "erdos_renyi": _erdos_renyi,
    "hierarchical": lambda m, seed: nx.full_rary_tree(2, m),
}


def make(name: str, n_agents: int, *, seed: int = 0) -> nx.Graph:
    """A connected graph on the nodes 0 ... M - 1.

    Args:
        name: "complete"; "ring"; "line"; "star", all linked to agent 0; "grid", as square as the divisors of M allow (a
            line if M is prime); "erdos_renyi", each edge with probability 2 ln M / M, drawn again with the next seed
            until connected; "hierarchical", the binary tree where agent i reports to agent (i - 1) // 2.
        n_agents: M >= 2.
        seed: of "erdos_renyi"; the others ignore it.

    Raises:
        ValueError, TypeError: naming the argument and its value.

    Example:
        >>> sorted(make("hierarchical", 5).edges)
        [(0, 1), (0, 2), (1, 3), (1, 4)]
    """
    graph = GRAPHS[validate.one_of("name", name, GRAPHS)]
    return graph(_check_n_agents(n_agents), validate.integer("seed", seed, at_least=0))
