"""Decentralised FedUCB equals Algorithm 3 message by message, and has the limits of complete and of empty graphs."""

import dataclasses
import itertools
import math
import re

import jax
import networkx as nx
import numpy as np
import pytest
from helpers import deep, random_script, regrets, stepped
from oracles import linear as oracles
from oracles.gossip import gossip_fed_ucb

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.packing import packed_size, unpack

S = fb.schedules
LITTLE = fb.privacy.Budget(2000.0, 0.1)
T, M, D = 61, 5, 3  # T is a multiple of no gamma but 1


@pytest.fixture
def script():
    return random_script(11, (T, M, 4, D), [0.6, -0.5, 0.3])


def run(env, algo, key, horizon=T):
    """The bound algorithm, regret of every round, counters, and how many synchronisations (steps, gamma, C) there
    were."""
    clock = RoundClock(env=env, algo=algo.bind(env.spec, horizon), horizon=horizon)
    state, (regret, report, synced) = stepped(told, clock, np.arange(clock.n_steps), key)
    counts = {name: int(np.sum(count)) for name, count in {**report.counts, "floats": report.floats}.items()}
    return clock.algo, np.asarray(regret).ravel()[:horizon], counts, np.asarray(synced), state


def told(state, metrics):
    return metrics.gap, metrics.report, state.synced


def gossip(graph, gamma=1, privacy=None, **options):
    """Gossip-FedUCB with parameters of any of its parts."""
    return fb.algos.GossipFedUCB(graph=graph, gamma=gamma, privacy=privacy).replace(**options)


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
    deep(
        [
            *((graph, None, S.LogDet(8.0)) for graph in GRAPHS),
            ("line", LITTLE, S.LogDet(16.0, "dp20")),
            ("ring", LITTLE, S.LogDet(12.0, "zc24")),
        ],
        keep={0, 6},
    ),
)
def test_algorithm_3(script, key, graph, budget, schedule):
    network, gamma = GRAPHS[graph]
    algo = gossip(network, gamma, budget, schedule=schedule, regularization=0.5)
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
        mechanism = jax.tree.map(lambda leaf: leaf[clique[i]], bound.mechanism)
        draw = mechanism.trust.noise(one, packed_size(D))
        tree = trees.setdefault((g, clique[i]), oracles.TreeSilo(prefix=True))
        return tree.randomize(k, 0.0, np.asarray(unpack(draw, D), float))

    width = bound.policy.width
    sizes = np.bincount(clique)
    rho_min = float(bound.policy.first_regularization[0]) / sizes[0]
    rho_max = 2 * float(bound.policy.regularization[0]) / sizes[0] - rho_min
    assert (rho_max > rho_min + 1e-3) == (budget is not None)
    expected = gossip_fed_ucb(
        script,
        network,
        clique,
        gamma,
        T,
        rho_min=rho_min,
        rho_max=rho_max,
        threshold=2 * float(bound.schedule.threshold),
        beta=lambda i, grown: (
            float(width.offset[i])
            + float(width.slope[i]) * np.sqrt(float(width.log_term[i]) + D * np.log(sizes[clique[i]] * rho_min) + grown)
        ),
        noise=None if budget is None else noise,
        trigger=schedule.trigger,
    )
    np.testing.assert_array_equal(synced[-1].T, expected.syncs)
    assert expected.syncs.sum() >= 3
    np.testing.assert_allclose(regret, expected.regret, atol=2e-5)
    assert counts["messages"] == len(expected.log)
    assert counts["hops"] == sum(expected.transmissions.values())
    assert counts["floats"] == expected.transmissions["data"] * packed_size(D)
    assert int(np.bitwise_or.reduce(state.status)) == 0


@pytest.mark.slow
def test_complete_graph_is_the_controller_one_round_late(script, key):
    """With a threshold that always asks: a request in one round, everybody's sums in the next."""
    network = gossip(nx.complete_graph(M), schedule=S.LogDet(1e-6), regularization=0.5)
    _, regret, _, synced, _ = run(script, network, key)
    assert synced[:, 0, 0].tolist() == [(t + 1) // 2 for t in range(T)]
    controller = fb.algos.fed_ucb(schedule=2).replace(regularization=0.5).bind(script.spec, T)
    np.testing.assert_allclose(regret, regrets(script, controller, T, key), atol=2e-5)


@pytest.mark.slow
def test_isolated_agents_are_independent(key):
    """Without edges it is LinUCB, however often agents send what nobody receives (greedy: the widths differ)."""
    env = fb.envs.sphere(3, 6, 4, rewards="bernoulli")
    network = gossip(nx.empty_graph(3), schedule=S.LogDet(5.0), exploration_scale=0.0)
    _, regret, counts, synced, _ = run(env, network, key, 80)
    assert synced[-1].min() > 2
    assert counts["hops"] == 0  # there is no edge to send over
    alone = fb.algos.LinUCB().replace(exploration_scale=0.0).bind(env.spec, 80)
    clock = RoundClock(env=env, algo=alone, horizon=80)
    whole = jax.jit(clock.step)(key, *clock.init(key), 0)[2].gap  # a step has more rounds than the horizon
    np.testing.assert_allclose(regret, whole[:80], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("cpu", [True, False], ids=["on a CPU", "elsewhere"])
@pytest.mark.parametrize("trigger", ["zc24", "dp20"])
def test_refreshing_changes_nothing(script, key, monkeypatch, trigger, cpu):
    """Nor does what is written otherwise where programs are not compiled for a CPU."""
    algo = gossip(nx.path_graph(M), 2, LITTLE, schedule=S.LogDet(12.0, trigger))
    _, regret, _, synced, _ = run(script, algo, key)
    monkeypatch.setattr("fedbandit_jax.algos.loops.own_rows.REFRESH", 3)
    for module in ("algos.loops.own_rows", "core.ridge", "core.control"):
        monkeypatch.setattr(f"fedbandit_jax.{module}.on_cpu", lambda: cpu)
    stepped.clear_cache()
    _, again, _, synced_again, _ = run(script, algo, key)
    monkeypatch.undo()
    stepped.clear_cache()
    np.testing.assert_array_equal(synced, synced_again)
    np.testing.assert_allclose(regret, again, atol=2e-5)


@pytest.mark.slow
def test_seeds_side_by_side_equal_each_alone(key, same_noise):
    env = fb.envs.gap(4, 5, 3)
    algo = gossip(nx.path_graph(4), 2, LITTLE, schedule=S.LogDet(10.0, "dp20"))
    many = fb.simulate(env, algo, horizon=41, key=key, seeds=3)
    for i in range(0, 3, 2):
        _, regret, counts, *_ = run(env, algo, jax.random.fold_in(key, i), 41)
        np.testing.assert_allclose(many.regret[i], np.cumsum(regret), atol=1e-3)
        assert {name: many.counts[name][i, -1] for name in many.counts} == {name: counts[name] for name in many.counts}


@pytest.mark.slow
def test_denser_graphs_have_less_regret():
    """Complete < ring < nobody, by more than two standard errors of paired differences over 6 seeds."""
    env = fb.envs.gap(6, 8, 4)
    algos = {
        name: gossip(graph, schedule=S.LogDet(10.0), regularization=0.2)
        for name, graph in (
            ("complete", nx.complete_graph(6)),
            ("ring", nx.cycle_graph(6)),
            ("nobody", nx.empty_graph(6)),
        )
    }
    result = fb.sweep(env, algos, horizon=200, key=jax.random.key(1), seeds=6, stride=200)
    finals = [result[name].regret[:, -1] for name in algos]
    for less, more in itertools.pairwise(finals):
        difference = more - less
        assert difference.mean() > 2 * difference.std(ddof=1) / np.sqrt(len(difference))


@pytest.mark.parametrize(
    ("graph", "gamma", "options", "error", "words"),
    [
        (nx.path_graph(4), 0, {}, ValueError, "gamma must be >= 1, got 0"),
        (nx.path_graph(4), 4, {}, ValueError, "gamma must be at most the graph's diameter 3, got 4"),
        (nx.path_graph(1), 1, {}, ValueError, "graph must have 2 to 20,000 nodes, one for every agent, got 1"),
        (nx.Graph([(0, 1), (2, 3)]), 1, {}, ValueError, "graph must be connected, got 2 components"),
        ([(0, 1)], 1, {}, TypeError, "graph must be an undirected networkx.Graph, got list"),
        (nx.path_graph(4), 1, dict(schedule=S.Every(3)), TypeError, "schedule must be fb.schedules.LogDet"),
        (nx.path_graph(4), 1, dict(schedule=S.LogDet(max_syncs=3)), ValueError, "schedule must have max_syncs=None"),
        (nx.path_graph(4), 1, dict(policy=fb.algos.UCB()), TypeError, "policy must be an fb.algos.LogDetUCB"),
        (nx.path_graph(4), 1, dict(privacy=1.0), TypeError, "privacy must be an fb.privacy.Mechanism, .* got 1.0"),
        (
            nx.path_graph(4),
            1,
            dict(privacy=fb.privacy.Mechanism(LITTLE, trust="secagg")),
            ValueError,
            "trust must be 'silo_local' or .*, got 'secagg'",
        ),
    ],
)
def test_bad_parameters(graph, gamma, options, error, words):
    with pytest.raises(error, match=words):
        fb.algos.GossipFedUCB(graph=graph, gamma=gamma, **options)
    with pytest.raises(ValueError, match="failure must be in \\(0, 1\\), got 0"):
        gossip(nx.path_graph(4), failure=0)
    users = fb.privacy.Users(visits=2)
    with pytest.raises(ValueError, match="unit must be None or 'visit', as nobody is left out here, got Users"):
        gossip(
            nx.path_graph(4),
            privacy=fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), "prefix_tree", "silo_local_matrix", unit=users),
        )


def test_bad_environments():
    algo = gossip(nx.path_graph(4))
    with pytest.raises(ValueError, match="graph must have one node for each of 3 agents, got 4 nodes"):
        algo.bind(fb.envs.gap(3, 4, 3).spec, 100)


def test_certificate_claims_nothing():
    algo = gossip(nx.path_graph(4), 2, fb.privacy.Budget(1.0, 0.1))
    certificate = algo.certificate(fb.envs.gap(4, 4, 3).spec, 100)
    assert certificate.claim == "none"
    assert certificate.epsilon_exact == np.inf
    assert certificate.releases == 50  # of an estimator that is used every second round
    assert "noise of known law" in certificate.reason  # of the noise alone
    assert any("actions inside a batch" in seen for seen in certificate.not_covered)
    assert any("when silos ask" in seen for seen in certificate.not_covered)


@pytest.mark.parametrize("trust", ["silo_local", "silo_local_matrix"])
@pytest.mark.parametrize(("graph", "most"), [(nx.empty_graph(4), 1), (nx.path_graph(3), 2), (nx.complete_graph(4), 4)])
def test_the_certificate_says_whose_noise_it_is(graph, most, trust):
    """Nobody is a server: one silo's noise is stated, and what the largest clique, of `most` silos, adds up of it.

    In 100 uses a prefix is made of at most 6 nodes (63 = 2^6 - 1); noise on the joint matrix has sqrt 2 times the
    standard deviation on the diagonal.
    """
    budget = fb.privacy.Budget(1.0, 0.1)
    algo = gossip(graph, 1, fb.privacy.Mechanism(budget, "prefix_tree", trust))
    certificate = algo.certificate(fb.envs.gap(len(graph), 4, 3).spec, 100)
    sigma = fb.privacy.calibrate(budget, n_syncs=100, release="prefix_tree", trust=trust).sigma
    summed = sigma * math.sqrt((2 if trust == "silo_local_matrix" else 1) * 6 * most)
    assert certificate.noise_std == pytest.approx(sigma, rel=1e-6)
    assert certificate.server_noise_std is None
    text = " ".join(str(certificate).split())
    stated = re.search("of a silo's message.* at most (.*) in the sums that the silos of a clique add up", text)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(summed, rel=1e-5)
    assert "there is no server" in certificate.trust
    assert "server's sums" not in text


@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.complete_graph(4), nx.star_graph(3)])
def test_the_noise_of_a_silo_is_its_part_of_its_cliques(graph):
    """Of n_C silos whose variances add up: each has what it was calibrated for, and less is noticed."""
    budget = fb.privacy.Budget(1.0, 0.1)
    bound = gossip(graph, 1, budget).bind(fb.envs.gap(4, 4, 3).spec, 100)
    sigma = fb.privacy.calibrate(budget, n_syncs=100, release="prefix_tree", trust="silo_local_matrix").sigma
    std = np.asarray(bound.mechanism.trust.std, float)[:, 0]
    np.testing.assert_allclose(std, sigma * np.sqrt(np.bincount(bound.clique)), rtol=1e-5)
    assert certify(bound).noise_std == pytest.approx(sigma, rel=1e-5)
    assert "noise of known law" in certify(bound).reason
    trust = dataclasses.replace(bound.mechanism.trust, std=bound.mechanism.trust.std * np.float32(0.9))
    quiet = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, trust=trust))
    assert "noise gives epsilon = 1." in certify(quiet).reason


@pytest.mark.slow
def test_checkpoints_know_the_graph(tmp_path, key):
    """Two graphs of as many edges are two runs, though their programs are one."""
    env, path = fb.envs.gap(4, 4, 3), tmp_path / "run"
    star, line = (gossip(graph) for graph in (nx.star_graph(3), nx.path_graph(4)))
    options = dict(horizon=5, key=key, seeds=1, checkpoint=path)
    result = fb.simulate(env, star, **options)
    assert result.config["algorithms"][star.name]["graph"]["nodes"] == 4
    with pytest.raises(ValueError, match="belongs to another run"):
        fb.simulate(env, line, **options)


def test_uses_of_an_estimator_are_counted_to_the_end():
    """Five rounds with gamma = 2 are three uses, of which the threshold is 2 T d / (ln(1 + T / d) + 1), halved."""
    algo = fb.algos.GossipFedUCB(graph=fb.networks.make("line", 3), gamma=2, schedule=fb.schedules.LogDet("M log T"))
    bound = algo.bind(fb.envs.sphere(3, 4, 2).spec, 5)
    assert float(bound.schedule.threshold) == pytest.approx(3 * 2 / (math.log(1 + 3 / 2) + 1))
