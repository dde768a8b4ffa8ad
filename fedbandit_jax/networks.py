"""Networks of agents: graphs, distances, covers by cliques, and the costs of messages.

The host prepares NumPy arrays for the loop. G_gamma, the power graph, has an edge between any two agents at most gamma
hops apart. A message travels one hop a round, so messages between agents of one clique of G_gamma take at most gamma
rounds.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Int

from fedbandit_jax.core import validate

STRATEGIES = ("largest_first", "smallest_last", "connected_sequential_bfs")
SLOW_STRATEGIES = ("independent_set", "saturation_largest_first")  # take a minute for 1000 agents
MAX_AGENTS = 20_000  # for the memory of their distances
SLOW_UP_TO = 200  # most agents for the slow strategies


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A prepared graph: distances, a cover by cliques, and the costs of messages; made by `network`."""

    distances: Int[np.ndarray, "M M"]  # hops between agents; M without a path
    gamma: int  # hops after which a message is dropped
    clique: Int[np.ndarray, " M"]  # index of each agent's clique

    @property
    def sizes(self) -> Int[np.ndarray, " C"]:
        """Number of agents in each clique."""
        return np.bincount(self.clique)

    @property
    def diameter(self) -> int:
        """Largest distance between two connected agents, in hops; 0 without an edge."""
        return int(self.distances[self.distances < len(self.clique)].max())

    @property
    def hops(self) -> Int[np.ndarray, " M"]:
        """Counts the transmissions over edges for one broadcast of each agent.

        A broadcast floods the graph and is dropped after gamma hops. Every agent less than gamma hops away forwards it
        once to all its neighbours. For agent i this is the sum of deg(j) over agents j with distance d(i, j) < gamma.
        """
        return (self.distances < self.gamma) @ (self.distances == 1).sum(1)


def network(graph: nx.Graph, gamma: int) -> Network:
    """Computes cliques of agents that reach each other within gamma rounds, and the costs of messages.

    The clique cover is a greedy colouring of the complement of G_gamma, the best of several orders of the agents. For a
    line it has the fewest cliques, ceil(M / (gamma + 1)); in general the minimum is NP-hard. It takes seconds for 500
    agents, and about M^2.5 of time beyond. Each graph is covered once in a process.

    Args:
        graph: undirected graph on the nodes 0 ... M - 1, M >= 2; connected, or without any edge (nobody communicates).
        gamma: hops after which a message is dropped, from 1 to the graph's diameter.

    Example:
        >>> line = network(make("line", 7), gamma=2)
        >>> line.clique, line.hops
        (array([0, 0, 0, 1, 1, 1, 2]), array([3, 5, 6, 6, 6, 5, 3]))

    Reference: Dubey & Pentland (2020), Section 4.2.
    """
    _check(graph)
    gamma = validate.integer("gamma", gamma, at_least=1)
    built = _network(len(graph), frozenset(map(tuple, map(sorted, graph.edges))), gamma)
    if gamma > max(1, built.diameter):
        raise validate.BadValue("gamma", f"must be at most the graph's diameter {built.diameter}", gamma)
    return built


@functools.lru_cache(maxsize=16)  # recipes ask when they are made, changed and bound
def _network(m: int, edges: frozenset[tuple[int, int]], gamma: int) -> Network:
    distances = np.full((m, m), m)
    for i, row in nx.all_pairs_shortest_path_length(nx.Graph(edges)):
        distances[i, list(row)] = list(row.values())
    np.fill_diagonal(distances, 0)  # also for isolated agents
    return Network(distances, gamma, _cover(distances, gamma))


def _check(graph: Any) -> None:
    if not isinstance(graph, nx.Graph) or graph.is_directed() or graph.is_multigraph():
        raise validate.BadType("graph", "must be an undirected networkx.Graph", graph, got=type(graph).__name__)
    if not 2 <= len(graph) <= MAX_AGENTS:
        must = f"must have 2 to {MAX_AGENTS:,} nodes, one for every agent"
        raise validate.BadValue("graph", must, len(graph), got=f"{len(graph):,}")
    numbers = range(len(graph))
    strange = [node for node in graph if type(node) is bool or not isinstance(node, Integral) or node not in numbers]
    if strange:  # True and 1.0 equal an integer, but are no indices
        raise validate.BadValue("graph", f"must have the nodes 0 to {len(graph) - 1}", min(strange, key=repr))
    for node, _ in nx.selfloop_edges(graph):
        raise validate.BadValue("graph", "must have no self-loops", node, got=f"one at node {node}")
    parts = nx.number_connected_components(graph)
    if parts > 1 and graph.number_of_edges():
        got = f"{parts} components: give each its own simulation"
        raise validate.BadValue("graph", "must be connected", parts, got=got)


def _cover(distances: np.ndarray, gamma: int) -> np.ndarray:
    complement = nx.from_numpy_array(distances > gamma)
    end = distances[0].argmax()

    def sweep(*_: Any) -> list[int]:  # orders agents from one end of the graph to the other
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


GRAPHS: dict[str, Callable[[int, int], nx.Graph]] = {  # name -> function of n_agents and seed
    "complete": lambda m, seed: nx.complete_graph(m),
    "ring": lambda m, seed: nx.cycle_graph(m),
    "line": lambda m, seed: nx.path_graph(m),
    "star": lambda m, seed: nx.star_graph(m - 1),
    "grid": _grid,
    "erdos_renyi": _erdos_renyi,
    "hierarchical": lambda m, seed: nx.full_rary_tree(2, m),
}


def make(name: str, n_agents: int, *, seed: int = 0) -> nx.Graph:
    """Makes a connected graph of a named kind on the nodes 0 ... M - 1.

    Args:
        name: "complete"; "ring"; "line"; "star", all linked to agent 0; "grid", as square as the divisors of M allow (a
            line if M is prime); "erdos_renyi", with edge probability 2 ln M / M, redrawn with the next seed until the
            graph is connected; "hierarchical", the binary tree in which agent i reports to agent (i - 1) // 2.
        n_agents: M, from 2 to 20,000.
        seed: integer in [0, 2^32) for "erdos_renyi"; other graphs ignore it.

    Example:
        >>> sorted(make("hierarchical", 5).edges)
        [(0, 1), (0, 2), (1, 3), (1, 4)]
    """
    graph = GRAPHS[validate.one_of("name", name, GRAPHS)]
    m = validate.integer("n_agents", n_agents, at_least=2, at_most=MAX_AGENTS)
    return graph(m, validate.integer("seed", seed, at_least=0, at_most=2**32 - 1))
