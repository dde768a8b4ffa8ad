"""Decentralised FedUCB equals Algorithm 3 message by message, and has the limits of complete and of empty graphs."""

import itertools

import jax
import networkx as nx
import numpy as np
import oracles
import pytest
from gossip_oracle import gossip_fed_ucb

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.engine.process import RoundProcess
from fedbandit_jax.privacy.statistic import unpack

S = fb.schedules
LITTLE = fb.privacy.Budget(2000.0, 0.1)
T, M, D = 61, 5, 3  # T is a multiple of no gamma but 1


@pytest.fixture
def script():
    rng = np.random.default_rng(11)
    contexts = rng.standard_normal((T, M, 4, D))
    contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True) * rng.uniform(1, 2, (T, M, 4))[..., None]
    means = 0.5 + 0.5 * contexts @ np.array([0.6, -0.5, 0.3])
    return fb.envs.script(contexts, (rng.random(means.shape) < means).astype(float), means)


def run(env, algo, key, horizon=T):
    """The bound algorithm, regret of every round, counters, and how many synchronisations (steps, gamma, C) there
    were."""
    process = RoundProcess(env=env, algo=algo.bind(env.spec, horizon), horizon=horizon)
    carry, (regret, report, synced) = play(process, key)
    counts = {name: int(np.sum(count)) for name, count in report.counts.items()}
    return process.algo, np.asarray(regret).ravel()[:horizon], counts, np.asarray(synced), carry[1]


@jax.jit
def play(process, key):
    def body(carry, k):
        world, state, metrics = process.step(key, *carry, k)
        return (world, state), (metrics.regret, metrics.report, state.synced)

    return jax.lax.scan(body, process.init(key), np.arange(process.n_steps))


GRAPHS = {
    "line": (nx.path_graph(M), 2),
    "ring": (nx.cycle_graph(M), 1),
    "star": (nx.star_graph(M - 1), 2),
    "complete": (nx.complete_graph(M), 1),
    "long line": (nx.path_graph(M), 3),
    "empty": (nx.empty_graph(M), 1),
}


@pytest.mark.parametrize(
    ("graph", "budget", "schedule"),
    [(graph, None, S.logdet(8.0)) for graph in GRAPHS]
    + [("line", LITTLE, S.logdet(16.0, "dp20")), ("ring", LITTLE, S.logdet(12.0, "zc24"))],
)
def test_algorithm_3(script, key, graph, budget, schedule):
    network, gamma = GRAPHS[graph]
    algo = fb.algos.gossip_fed_ucb(network, gamma, budget, schedule=schedule, regularization=0.5)
    bound, regret, counts, synced, state = run(script, algo, key)
    clique = np.asarray(bound.clique)
    trees = {}

    def noise(i, g, k):
        """All noise of a clique at its first member."""
        if i != np.flatnonzero(clique == clique[i])[0]:
            return np.zeros((D, D + 1))
        step = int(np.flatnonzero(synced[:, g, clique[i]] == k)[0])
        one = random.stream(jax.random.fold_in(jax.random.fold_in(random.stream(key, "syncs"), step), g), "release")
        one = jax.random.split(one, bound.n_cliques)[clique[i]]
        channel = jax.tree.map(lambda leaf: leaf[clique[i]], bound.channel)
        draw, _ = channel.protocol.noise(one, k, (), np.zeros((0, D, M)), np.zeros((0, M)))
        tree = trees.setdefault((g, clique[i]), oracles.TreeSilo(prefix=True))
        return tree.randomize(k, 0.0, np.asarray(unpack(draw, D), float))

    spectral = algo.bounds(algo.calibrate(script.spec, T), T, D, M)
    width = bound.width
    sizes = np.bincount(clique)
    expected = gossip_fed_ucb(
        script,
        network,
        clique,
        gamma,
        T,
        rho_min=spectral.rho_min,
        rho_max=spectral.rho_max,
        threshold=2 * float(bound.schedule.threshold),
        beta=lambda i, grown: (
            float(width.offset[i])
            + float(width.slope[i])
            * np.sqrt(float(width.log_term[i]) + D * np.log(sizes[clique[i]] * spectral.rho_min) + grown)
        ),
        noise=None if budget is None else noise,
        trigger=schedule.trigger,
    )
    np.testing.assert_array_equal(synced[-1].T, expected.syncs)
    assert expected.syncs.sum() >= 3
    np.testing.assert_allclose(regret, expected.regret, atol=2e-5)
    assert counts["messages"] == len(expected.log)
    assert counts["hops"] == sum(expected.transmissions.values())
    assert int(np.bitwise_or.reduce(state.status)) == 0


def test_complete_graph_is_the_controller_one_round_late(script, key):
    """With a threshold that always asks: a request in one round, everybody's sums in the next."""
    options = dict(regularization=0.5)
    gossip = fb.algos.gossip_fed_ucb(nx.complete_graph(M), 1, schedule=S.logdet(1e-6), **options)
    _, regret, _, synced, _ = run(script, gossip, key)
    assert synced[:, 0, 0].tolist() == [(t + 1) // 2 for t in range(T)]
    controller = fb.algos.fed_ucb(schedule=S.every(2), **options).bind(script.spec, T)
    process = RoundProcess(env=script, algo=controller, horizon=T)

    def body(carry, k):
        world, state, metrics = process.step(key, *carry, k)
        return (world, state), metrics.regret

    expected = jax.lax.scan(body, process.init(key), np.arange(T))[1].ravel()
    np.testing.assert_allclose(regret, expected, atol=2e-5)


def test_isolated_agents_are_independent(key):
    """Without edges it is LinUCB, however often agents send what nobody receives (greedy: the widths differ)."""
    env = fb.envs.sphere(3, 6, 4, rewards="bernoulli")
    gossip = fb.algos.gossip_fed_ucb(nx.empty_graph(3), schedule=S.logdet(5.0), exploration_scale=0.0)
    _, regret, counts, synced, _ = run(env, gossip, key, 80)
    assert synced[-1].min() > 2
    assert counts["hops"] == 0  # there is no edge to send over
    process = RoundProcess(env=env, algo=fb.algos.lin_ucb(exploration_scale=0.0).bind(env.spec, 80), horizon=80)
    np.testing.assert_allclose(regret, jax.jit(process.step)(key, *process.init(key), 0)[2].regret, atol=1e-4)


def test_refreshing_changes_nothing(script, key, monkeypatch):
    for trigger in ("zc24", "dp20"):
        algo = fb.algos.gossip_fed_ucb(nx.path_graph(M), 2, LITTLE, schedule=S.logdet(12.0, trigger))
        _, regret, _, synced, _ = run(script, algo, key)
        monkeypatch.setattr("fedbandit_jax.algos.linear._gossip.REFRESH", 3)
        play.clear_cache()
        _, again, _, synced_again, _ = run(script, algo, key)
        monkeypatch.undo()
        play.clear_cache()
        np.testing.assert_array_equal(synced, synced_again)
        np.testing.assert_allclose(regret, again, atol=2e-5)


def test_seeds_side_by_side_equal_each_alone(key):
    env = fb.envs.gap(4, 5, 3)
    algo = fb.algos.gossip_fed_ucb(nx.path_graph(4), 2, LITTLE, schedule=S.logdet(10.0, "dp20"))
    many = fb.simulate(env, algo, horizon=41, key=key, n_seeds=3)
    for i in range(0, 3, 2):
        _, regret, counts, *_ = run(env, algo, jax.random.fold_in(key, i), 41)
        np.testing.assert_allclose(many.regret[i], np.cumsum(regret), atol=1e-3)
        assert {name: many.counts[name][i, -1] for name in counts} == counts


def test_denser_graphs_have_less_regret():
    """Complete < ring < nobody, by more than two standard errors of paired differences over 6 seeds."""
    env = fb.envs.gap(6, 8, 4)
    algos = {
        name: fb.algos.gossip_fed_ucb(graph, 1, schedule=S.logdet(10.0), regularization=0.2)
        for name, graph in (
            ("complete", nx.complete_graph(6)),
            ("ring", nx.cycle_graph(6)),
            ("nobody", nx.empty_graph(6)),
        )
    }
    result = fb.sweep(env, algos, horizon=200, key=jax.random.key(1), n_seeds=6, stride=200)
    finals = [result[name].regret[:, -1] for name in algos]
    for less, more in itertools.pairwise(finals):
        difference = more - less
        assert difference.mean() > 2 * difference.std(ddof=1) / np.sqrt(len(difference))


@pytest.mark.parametrize(
    ("graph", "gamma", "options", "error", "words"),
    [
        (nx.path_graph(4), 0, {}, ValueError, "gamma must be >= 1, got 0"),
        (nx.path_graph(4), 4, {}, ValueError, "gamma must be at most the graph's diameter 3, got 4"),
        (nx.path_graph(1), 1, {}, ValueError, "n_agents must be at least 2, got 1"),
        (nx.Graph([(0, 1), (2, 3)]), 1, {}, ValueError, "graph must be connected, got 2 components"),
        ([(0, 1)], 1, {}, TypeError, "graph must be an undirected networkx.Graph, got a list"),
        (nx.path_graph(4), 1, dict(schedule=S.every(3)), TypeError, "schedule must be fb.schedules.logdet"),
        (nx.path_graph(4), 1, dict(schedule=S.logdet(max_syncs=3)), ValueError, "schedule must have max_syncs=None"),
        (nx.path_graph(4), 1, dict(alpha=0), ValueError, "alpha must be in \\(0, 1\\), got 0"),
    ],
)
def test_bad_parameters(graph, gamma, options, error, words):
    with pytest.raises(error, match=words):
        fb.algos.gossip_fed_ucb(graph, gamma, **options)


def test_bad_environments():
    algo = fb.algos.gossip_fed_ucb(nx.path_graph(4))
    with pytest.raises(ValueError, match="graph must have one node for each of 3 agents, got 4 nodes"):
        algo.bind(fb.envs.gap(3, 4, 3).spec, 100)


def test_certificate_claims_nothing():
    algo = fb.algos.gossip_fed_ucb(nx.path_graph(4), 2, fb.privacy.Budget(1.0, 0.1))
    certificate = algo.certificate(fb.envs.gap(4, 4, 3).spec, 100)
    assert certificate.claim == "none"
    assert certificate.epsilon_exact == np.inf
    assert certificate.releases == 50  # of an estimator that is used every second round


def test_checkpoints_know_the_graph(tmp_path, key):
    """Two graphs of as many edges are two runs, though their programs are one."""
    env, path = fb.envs.gap(4, 4, 3), tmp_path / "run"
    star, line = (fb.algos.gossip_fed_ucb(graph) for graph in (nx.star_graph(3), nx.path_graph(4)))
    options = dict(horizon=5, key=key, n_seeds=1, checkpoint=path)
    result = fb.simulate(env, star, **options)
    assert result.config["algorithms"][star.name]["graph"]["nodes"] == 4
    with pytest.raises(ValueError, match="belongs to another run"):
        fb.simulate(env, line, **options)
