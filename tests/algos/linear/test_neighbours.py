"""Gossip on released statistics equals a simulation of every message, is certified, and has the limits it should."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from helpers import deep, random_script, stepped
from oracles import linear as oracles
from oracles.gossip import released_gossip

import fedbandit_jax as fb
from fedbandit_jax.core import random
from fedbandit_jax.engine.clocks import RoundClock
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.packing import packed_size, unpack

S, M, D, T = fb.schedules, 5, 3, 41
BUDGET = fb.privacy.Budget(1.0, 0.1)
SLIGHT = fb.privacy.Mechanism(fb.privacy.Budget(2000.0, 0.1), "tree")
ROUNDS = S.Geometric(1.4, first=7)


def gossip(graph=None, gamma=1, **options):
    graph = nx.cycle_graph(M) if graph is None else graph
    return fb.algos.Gossip(**dict(graph=graph, gamma=gamma, policy=fb.algos.UCB(), schedule=ROUNDS) | options)


@pytest.fixture
def script():
    return random_script(3, (T, M, 4, D), [0.6, -0.5, 0.3])


def told(state, metrics):
    return metrics.gap, metrics.report, state.sent


def run(env, bound, key):
    """The last state, regret of every round, hops, and the last releases of all silos after every round."""
    clock = RoundClock(env=env, algo=bound, horizon=T)
    state, (regret, report, sent) = stepped(told, clock, np.arange(T), key)
    return state, np.asarray(regret).ravel(), int(report.counts["hops"].sum()), np.asarray(sent)


GRAPHS = {
    "line": (nx.path_graph(M), 2),
    "ring": (nx.cycle_graph(M), 1),
    "long line": (nx.path_graph(M), 3),
    "empty": (nx.empty_graph(M), 1),
    "star": (nx.star_graph(M - 1), 1),
}


@pytest.mark.parametrize(("graph", "kind"), deep(list(itertools.product(GRAPHS, ("noise", "no noise"))), keep={0}))
def test_every_message(script, key, graph, kind):
    (network, gamma), privacy = GRAPHS[graph], SLIGHT if kind == "noise" else None
    bound = gossip(network, gamma, privacy=privacy).bind(script.spec, T)
    state, regret, hops, _ = run(script, bound, key)
    trees, rounds = {}, ROUNDS.rounds(T)

    def noise(i, k):
        one = jax.random.fold_in(random.stream(key, "syncs"), rounds[k - 1] - 1)
        one = jax.random.split(random.stream(one, "release"), M)[i]
        draw = np.asarray(unpack(bound.mechanism.trust.noise(one, packed_size(D)), D), float)
        return trees.setdefault(i, oracles.TreeSilo(prefix=True)).randomize(k, 0.0, draw)

    width, lam = bound.policy.width, np.asarray(bound.policy.regularization, float)
    expected, sent = released_gossip(
        script,
        network,
        gamma,
        T,
        rounds,
        lam,
        lambda i, t: float(jax.tree.map(lambda leaf: leaf[i], width)(t)),
        noise=None if privacy is None else noise,
    )
    np.testing.assert_allclose(regret, expected, atol=2e-5)
    assert hops == sent["data"]
    assert int(state.status) == 0


def test_a_complete_graph_is_federated(script, key):
    """Without noise to the last bit: everybody hears of everybody's sums, one round after they were sent.

    A silo adds up its own users only, in finer steps, so that less rounding is charged to its noise.
    """
    graph = nx.complete_graph(M)
    run = dict(horizon=T, key=key, seeds=2)
    ours = fb.simulate(script, gossip(graph), **run)
    server = fb.simulate(script, fb.algos.Federated(policy=fb.algos.UCB(), schedule=ROUNDS), **run)
    np.testing.assert_allclose(ours.regret, server.regret, atol=1e-4)
    mine, federated = (
        algo.replace(privacy=fb.privacy.Mechanism(BUDGET, "blt")).bind(script.spec, T)
        for algo in (gossip(graph), fb.algos.Federated(schedule=ROUNDS))
    )
    charged = federated.mechanism.statistic.rounding(M * federated.mechanism.longest)
    np.testing.assert_allclose(mine.stds * math.sqrt(M), federated.stds, rtol=1e-6 + charged)
    assert (mine.stds * math.sqrt(M) < federated.stds).all()
    assert charged < 1e-4
    for i in range(M):
        agent = jax.tree.map(lambda leaf, i=i: leaf[i], mine.policy)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), agent, federated.policy)


@pytest.mark.parametrize("graph", [nx.cycle_graph(M), nx.star_graph(M - 1)])
def test_agents_act_on_what_they_hear_and_know_its_noise(script, key, graph):
    """V_i = lambda_i I + the projected sum of what i's neighbours sent, lambda_i = 12 sqrt n_i standard deviations."""
    bound = gossip(graph, privacy=fb.privacy.Mechanism(BUDGET, "blt"), policy=fb.algos.Greedy()).bind(script.spec, T)
    state = run(script, bound, key)[0]
    assert int(state.heard) == int(state.released) == ROUNDS.n_syncs(T)
    for i in range(M):
        near = [i, *graph[i]]
        heard = np.asarray(state.sent, float)[near].sum(0)[:, :D]
        expected = np.maximum(np.linalg.eigvalsh(heard), 0) + 12 * math.sqrt(len(near)) * bound.stds[-1]
        np.testing.assert_allclose(np.linalg.eigvalsh(np.asarray(state.belief.gram[i], float)), expected, rtol=1e-4)


def test_every_silo_has_the_noise_of_its_own_budget(script, key):
    """What silos release less their exact sums: independent, with the standard deviation of one silo's calibration."""
    env = fb.envs.script(0 * np.asarray(script.contexts), np.zeros((T, M, 4)))
    bound = gossip(privacy=fb.privacy.Mechanism(BUDGET, "blt")).bind(env.spec, T)
    n, last = 600, ROUNDS.n_syncs(T) - 1
    sent = jax.vmap(lambda key: run_last(env, bound, key))(jax.random.split(key, n))
    found = np.asarray(bound.mechanism.statistic.pack(sent), float)  # (n, M, D')
    calibrated = fb.privacy.calibrate(BUDGET, n_syncs=last + 1, release="blt")
    declared = calibrated.sigma * np.sqrt(calibrated.ask.release.prefix_variance()[last])
    ratio, error = found.std(0).mean() / declared, 5 / math.sqrt(2 * n * found[0].size)
    assert ratio == pytest.approx(1, abs=error + 1e-3)
    assert abs(ratio / 1.05 - 1) > error  # a scale wrong by 5 % would be rejected
    between = np.corrcoef(found[..., 0].T) - np.eye(M)
    assert abs(between).max() < 5 / math.sqrt(n)


def run_last(env, bound, key):
    return stepped(told, RoundClock(env=env, algo=bound, horizon=T), jnp.arange(T), key)[0].sent


def test_it_is_certified():
    env = fb.envs.sphere(6, 4, 3, rewards="bernoulli")
    mechanism = fb.privacy.Mechanism(BUDGET, "blt", statistic=fb.privacy.Linear(centred=True, gram_scale=0.5))
    algo = gossip(nx.star_graph(5), 1, privacy=mechanism, policy=fb.algos.Greedy())
    found = algo.certificate(env.spec, T)
    assert found.claim == "certified"
    assert 0.99 < found.epsilon_exact <= 1 + 1e-6
    assert "there is no server" in found.trust
    assert found.server_noise_std is None
    sigma = fb.privacy.calibrate(BUDGET, n_syncs=ROUNDS.n_syncs(T), release="blt", moves_sq=9 / 8)
    most = math.sqrt(6 * sigma.ask.release.largest_variance()) * sigma.sigma / 0.5
    assert f"at most {most:.6g}"[:14] in found.noise_whose  # the middle of the star adds up six silos
    assert algo.replace(privacy=None).certificate(env.spec, T).claim == "none"


@pytest.fixture
def bound():
    algo = gossip(privacy=fb.privacy.Mechanism(BUDGET, "blt"), policy=fb.algos.Greedy())
    return algo.bind(fb.envs.sphere(M, 4, 3).spec, T)


@fb.pytree
class Crowd(fb.algos.Thompson):
    """A policy of one's own, which scores all agents at once."""

    def indices(self, key, t, prepared, offered):
        return offered.contexts.sum(2).T


def test_policies_of_one_s_own(script, key):
    """On a complete graph they are those of `Federated`, and certified unless they look at other agents."""
    for policy in (fb.algos.Thompson(), fb.algos.EpsilonGreedy(explore=8.0)):
        options, run = dict(schedule=ROUNDS, policy=policy), dict(horizon=T, key=key, seeds=2)
        ours = fb.simulate(script, gossip(nx.complete_graph(M), **options), **run)
        np.testing.assert_allclose(
            ours.regret, fb.simulate(script, fb.algos.Federated(**options), **run).regret, atol=1e-4
        )
        assert gossip(policy=policy, privacy=BUDGET).certificate(script.spec, T).claim == "certified"
    found = gossip(policy=Crowd(), privacy=BUDGET).certificate(script.spec, T)
    assert found.claim == "none"
    assert "scores the users of all agents" in found.reason


def test_forged_after_binding(bound):
    leaky = S.LogDet().bind(S.Setting(M, 3, T, 1.0, 1.0))
    trust = dataclasses.replace(bound.mechanism.trust, std=bound.mechanism.trust.std / np.float32(10))
    for words, forged in {
        "the schedule leaks": dataclasses.replace(bound, schedule=leaky),
        "gives epsilon": dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, trust=trust)),
        "bound for 5 silos": dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, n_agents=M)),
        "scores the users of all agents": dataclasses.replace(bound, policy=Crowd()),
        "not a private algorithm": dataclasses.replace(bound, mechanism=gossip().bind(bound.spec, T).mechanism),
        "another statistic": dataclasses.replace(bound, spec=dataclasses.replace(bound.spec, fixed_contexts=True)),
    }.items():
        assert certify(forged).claim == "none"
        assert words in certify(forged).reason


def test_handing_over_in_parts_changes_nothing(script, key):
    bound = gossip(privacy=SLIGHT).bind(script.spec, T)
    often = dataclasses.replace(bound, mechanism=dataclasses.replace(bound.mechanism, longest=3))
    one, other = (run(script, algo, key)[1] for algo in (bound, often))
    np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (dict(gamma=3), ValueError, "gamma must be at most the graph's diameter 2, got 3"),
        (dict(policy=fb.algos.LogDetUCB()), ValueError, "policy must not be LogDetUCB, as there is no server, got"),
        (dict(policy="ucb"), TypeError, "policy must be an fb.Policy, got 'ucb'"),
        (dict(schedule=S.LogDet()), TypeError, "schedule must be fb.schedules.Every or Geometric, got"),
        (dict(schedule=0), ValueError, "schedule must be >= 1, got 0"),
        (dict(privacy=1.0), TypeError, "privacy must be an fb.privacy.Mechanism, .* got 1.0"),
        (dict(privacy=fb.privacy.Mechanism(BUDGET, trust="central")), ValueError, "as there is no server, got 'cen"),
        (dict(privacy=[BUDGET] * M), ValueError, "budget must be one for all, .*, got 5"),
    ],
)
def test_bad_parameters(options, error, words):
    with pytest.raises(error, match=words):
        gossip(**options)


def test_bad_environments(script):
    with pytest.raises(ValueError, match="graph must have one node for each of 5 agents, got 4 nodes"):
        gossip(nx.path_graph(4)).bind(script.spec, T)
    with pytest.raises(ValueError, match="leave gamma = 2 rounds or more between two releases, got Every.* leaves 1"):
        gossip(gamma=2, schedule=1).bind(script.spec, T)
    with pytest.raises(ValueError, match="leave gamma = 4 rounds or more .*, which leaves 3"):
        gossip(nx.path_graph(M), gamma=4).bind(script.spec, T)
    long = fb.envs.script(np.full((1, M, 1, 2), 2.0), np.ones((1, M, 1)))
    with pytest.raises(ValueError, match="norm <= 1, the environment's largest has norm 2.8"):
        gossip(privacy=BUDGET).bind(long.spec, T)


@pytest.mark.slow
def test_goal(key):
    """Certified, epsilon = 1, 100 silos on a ring: below four times Algorithm 3 of the paper without privacy."""
    env, ring = fb.envs.sphere(100, 100, 10, rewards="bernoulli"), fb.networks.make("ring", 100)
    mechanism = fb.privacy.Mechanism(
        BUDGET, fb.privacy.Decaying(1.5), statistic=fb.privacy.Linear(centred=True, gram_scale=0.5)
    )
    options = dict(policy=fb.algos.Greedy(), schedule=S.Geometric(1.5, first=25))
    width = fb.algos.LogDetUCB(regularization=0.01)
    algos = {
        "ours": fb.algos.Gossip(graph=ring, gamma=5, privacy=mechanism, **options),
        "paper": fb.algos.GossipFedUCB(graph=ring, gamma=1, schedule=S.LogDet(3.0), policy=width),
    }
    result = fb.sweep(env, algos, horizon=2000, key=key, seeds=3, stride=2000)
    ours, paper = (result[name].regret[:, -1] for name in algos)
    assert (ours / paper).max() < 4
    assert result["ours"].certificate.claim == "certified"
