"""Gossip equals its pseudo-code message by message: decentralised FedUCB, and gossip on released statistics."""

import dataclasses
import math
import re

import examples as ex
import jax
import networkx as nx
import numpy as np
import pytest
from helpers import deep
from oracles import linear as oracles
from oracles.gossip import gossip_fed_ucb, released_gossip

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.packing import packed_size, unpack

S = fb.schedules
BUDGET, LITTLE = fb.privacy.Budget(1.0, 0.1), ex.LITTLE
M, D, T = ex.M, ex.D, ex.T


def gossip(graph, gamma=1, privacy=None, **options):
    """Gossip-FedUCB with parameters of any of its parts."""
    return fb.algos.GossipFedUCB(graph=graph, gamma=gamma, privacy=privacy).replace(**options)


MORE = {
    "ring": gossip(nx.cycle_graph(M)),
    "star": gossip(nx.star_graph(M - 1), 2, schedule=S.LogDet(2.0)),
    "complete": gossip(nx.complete_graph(M), schedule=S.LogDet(2.0)),
    "long line": gossip(nx.path_graph(M), 3),
    "empty": gossip(nx.empty_graph(M)),
    "dp20": gossip(nx.path_graph(M), 2, LITTLE, schedule=S.LogDet(16.0, "dp20")),
    "zc24": gossip(nx.cycle_graph(M), 1, LITTLE, schedule=S.LogDet(12.0, "zc24")),
}
ROWS = [row.name for row in ex.EXAMPLES.values() if row.oracle == ex.GOSSIP_UCB]


@pytest.mark.parametrize("name", deep([*ROWS, *MORE], keep={0, 1}))
def test_algorithm_3(name):
    run, algo = ex.run_of(name, MORE)
    bound, key, trees = run.bound, jax.random.fold_in(ex.KEY, 1), {}
    clique, width = np.asarray(bound.clique), bound.policy.width

    def noise(i, g, k, t):
        """All noise of a clique at its first member."""
        if i != np.flatnonzero(clique == clique[i])[0]:
            return np.zeros((D, D + 1))
        use = jax.random.fold_in(random.stream(key, "syncs"), t // algo.gamma)
        one = random.stream(jax.random.fold_in(use, g), "release")
        one = jax.random.split(one, len(bound.sizes))[clique[i]]
        mechanism = jax.tree.map(lambda leaf: leaf[clique[i]], bound.mechanism)
        draw = mechanism.trust.noise(one, packed_size(D))
        tree = trees.setdefault((g, clique[i]), oracles.Tree())
        return tree.release(k, 0.0, np.asarray(unpack(draw, D), float))

    def beta(i, grown):
        log_det = D * np.log(sizes[clique[i]] * rho_min) + grown
        return float(width.offset[i]) + float(width.slope[i]) * np.sqrt(float(width.log_term[i]) + log_det)

    sizes = np.bincount(clique)
    rho_min = float(bound.policy.first_regularization[0]) / sizes[0]
    rho_max = 2 * float(bound.policy.regularization[0]) / sizes[0] - rho_min
    assert (rho_max > rho_min + 1e-3) == (algo.privacy is not None)
    expected = gossip_fed_ucb(
        ex.SCRIPT, algo.graph, clique, algo.gamma, ex.T, rho_min=rho_min, rho_max=rho_max,
        threshold=2 * float(bound.schedule.threshold), beta=beta, noise=noise if algo.privacy else None,
        trigger=algo.schedule.trigger,
    )  # fmt: skip
    assert expected.syncs.sum() >= 3
    if name == "Gossip-FedUCB":
        assert expected.log[-1][0] == ex.T - 1  # in a last step that is not whole
    np.testing.assert_array_equal(np.asarray(run.state(1).synced).T, expected.syncs)
    np.testing.assert_allclose(run.gaps[1], expected.regret, atol=2e-5)
    counts, floats = run.result.counts, run.result.communication["floats"][1, -1]
    assert counts["messages"][1, -1] == len(expected.log)
    assert counts["hops"][1, -1] == sum(expected.transmissions.values())
    assert floats == expected.transmissions["data"] * packed_size(D)


@pytest.mark.parametrize(
    ("graph", "most", "trust"), [(nx.empty_graph(4), 1, "silo_local"), (nx.path_graph(3), 2, "silo_local_matrix")]
)
def test_the_certificate_says_whose_noise_it_is(graph, most, trust):
    """Nobody is a server: one silo's noise is stated, and what the largest clique, of `most` silos, adds up of it."""
    # In 100 uses a prefix has at most 6 nodes (63); joint noise has sqrt 2 times the deviation on the diagonal.
    algo = gossip(graph, 1, fb.privacy.Mechanism(BUDGET, "tree", trust))
    certificate = algo.certificate(fb.envs.gap(len(graph), 4, 3).spec, 100)
    sigma = fb.privacy.calibrate(BUDGET, n_syncs=100, release="tree", trust=trust).sigma
    summed = sigma * math.sqrt((2 if trust == "silo_local_matrix" else 1) * 6 * most)
    assert certificate.noise_std == pytest.approx(sigma, rel=1e-6)
    assert certificate.server_noise_std is None
    text = " ".join(str(certificate).split())
    stated = re.search("of a silo's message.* at most (.*) in the sums that the silos of a clique add up", text)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(summed, rel=1e-5)


@pytest.mark.parametrize("graph", [nx.complete_graph(4), nx.star_graph(3)])
def test_the_noise_of_a_silo_is_its_part_of_its_cliques(graph):
    """Of n_C silos whose variances add up: each has what it was calibrated for, and less is noticed."""
    bound = gossip(graph, 1, BUDGET).bind(fb.envs.gap(4, 4, 3).spec, 100)
    sigma = fb.privacy.calibrate(BUDGET, n_syncs=100, release="tree", trust="silo_local_matrix").sigma
    std = np.asarray(bound.mechanism.trust.std, float)[:, 0]
    np.testing.assert_allclose(std, sigma * np.sqrt(np.bincount(bound.clique)), rtol=1e-5)
    assert certify(bound).noise_std == pytest.approx(sigma, rel=1e-5)
    trust = dataclasses.replace(bound.mechanism.trust, std=bound.mechanism.trust.std * np.float32(0.9))
    quiet = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, trust=trust))
    assert "noise gives epsilon = 1." in certify(quiet).reason
    with pytest.raises(AttributeError):
        object.__setattr__(bound, "raw", ())
    vars(bound)["raw"] = ()
    assert bound.guarantee().claim == "none"


def test_uses_of_an_estimator_are_counted_to_the_end():
    """Five rounds with gamma = 2 are three uses, of which the threshold is 2 T d / (ln(1 + T / d) + 1), halved."""
    algo = fb.algos.GossipFedUCB(graph=fb.networks.make("line", 3), gamma=2, schedule=fb.schedules.LogDet("M log T"))
    bound = algo.bind(fb.envs.sphere(3, 4, 2).spec, 5)
    assert float(bound.schedule.threshold) == pytest.approx(3 * 2 / (math.log(1 + 3 / 2) + 1))


# Gossip on released statistics.


SLIGHT = fb.privacy.Mechanism(ex.LITTLE, "tree")
ROUNDS = S.Geometric(1.4, first=7)


def neighbours(graph=None, gamma=1, **options):
    graph = nx.cycle_graph(M) if graph is None else graph
    return fb.algos.Gossip(**dict(graph=graph, gamma=gamma, policy=fb.algos.UCB(), schedule=ROUNDS) | options)


NEAR = {
    "ring": neighbours(nx.cycle_graph(M), privacy=SLIGHT),
    "long line": neighbours(nx.path_graph(M), 3, privacy=SLIGHT),
    "empty": neighbours(nx.empty_graph(M), privacy=SLIGHT),
    "star": neighbours(nx.star_graph(M - 1)),
    "a range": neighbours(privacy=dataclasses.replace(SLIGHT, statistic=fb.privacy.Linear(low=-1, high=3))),
}
NEAR_ROWS = [row.name for row in ex.EXAMPLES.values() if row.oracle == ex.GOSSIP]


@pytest.mark.parametrize("name", deep([*NEAR_ROWS, *NEAR], keep={0, 1}))
def test_what_is_heard(name):
    run, algo = ex.run_of(name, NEAR)
    bound, key, trees, rounds = run.bound, jax.random.fold_in(ex.KEY, 1), {}, algo.schedule.rounds(T)

    def noise(i, k):
        one = jax.random.fold_in(random.stream(key, "syncs"), rounds[k - 1] - 1)
        one = jax.random.split(random.stream(one, "release"), M)[i]
        draw = np.asarray(unpack(bound.mechanism.trust.noise(one, packed_size(D)), D), float)
        return trees.setdefault(i, oracles.Tree()).release(k, 0.0, draw)

    width, lam = bound.policy.width, np.asarray(bound.policy.regularization, float)
    expected = released_gossip(
        ex.SCRIPT, algo.graph, algo.gamma, T, rounds, lam, lambda i, t: float(jax.tree.map(lambda x: x[i], width)(t)),
        noise=noise if algo.privacy else None, response=(lambda y: (y + 1) / 4) if name == "a range" else float,
    )  # fmt: skip
    np.testing.assert_allclose(run.gaps[1], expected, atol=2e-5)
    hops = fb.networks.network(algo.graph, algo.gamma).hops  # test_networks.py has these
    assert run.result.counts["hops"][1, -1] == len(rounds) * hops.sum()


@pytest.mark.parametrize("policy", [ex.UCB, fb.algos.Thompson()])
def test_a_complete_graph_has_the_noise_of_a_server(policy):
    """Silos add up their own users, so that less rounding is charged. test_limits.py compares what they play."""
    mine, federated = (
        kind(policy=policy, schedule=ROUNDS, privacy=ex.private("blt"), **graph).bind(ex.SCRIPT.spec, T)
        for kind, graph in ((fb.algos.Gossip, dict(graph=nx.complete_graph(M))), (fb.algos.Federated, {}))
    )
    charged = federated.mechanism.statistic.rounding(M * federated.mechanism.longest)
    np.testing.assert_allclose(mine.stds * math.sqrt(M), federated.stds, rtol=1e-6 + charged)
    assert (mine.stds * math.sqrt(M) < federated.stds).all()
    assert charged < 1e-4
    found = certify(mine)
    stated = re.search("at most (.*) in the sums that an agent adds up", found.noise_whose)
    assert stated is not None
    assert (found.claim, found.server_noise_std) == ("certified", None)
    assert float(stated[1]) == pytest.approx(federated.stds.max(), rel=1e-3)
    for i in range(M):
        agent = jax.tree.map(lambda leaf, i=i: leaf[i], mine.policy)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), agent, federated.policy)


def test_handing_over_in_parts_changes_nothing():
    run = ex.played("Gossip")
    often = run.bound.replace(mechanism=dataclasses.replace(run.bound.mechanism, longest=3))
    np.testing.assert_allclose(ex.simulate(ex.SCRIPT, often).regret, run.result.regret, atol=1e-3)
