"""Contexts that are never stored: the same arms, rewards and regret as with contexts that are, for every family."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep, stepped

import fedbandit_jax as fb
from fedbandit_jax.core import choose, control
from fedbandit_jax.core.lots import Lots
from fedbandit_jax.core.ridge import NOWHERE, Posterior
from fedbandit_jax.core.scoring import Scorer
from fedbandit_jax.engine.runners import Synchronous, batch, drawn

BUDGET = fb.privacy.Budget(1.0, 0.1)
# On a sphere all arms are worth the same before anything is learned, and rounding would choose among them.
GAP = fb.envs.gap(5, 6, 4)
FAMILIES = {
    "FedLinUCB": fb.algos.fed_lin_ucb(schedule=4),
    "LinUCB": fb.algos.LinUCB(),
    "FedUCB": fb.algos.fed_ucb(),
    "gossip": fb.algos.GossipFedUCB(graph=fb.networks.make("ring", 5)),
    "gossip, private": fb.algos.Gossip(graph=fb.networks.make("ring", 5), schedule=4, privacy=BUDGET),
    "lazy, private": fb.algos.private_fed_lin_ucb(BUDGET, schedule=4),
}


def runner(env, family="FedLinUCB", horizon=12):
    return Synchronous(env=env, algo=FAMILIES[family].bind(env.spec, horizon), horizon=horizon)


def told(state, metrics):
    return metrics.gap, metrics.report.status


def play(process, key):
    """Regret of every round, and the last state."""
    stepped.clear_cache()  # of another machine
    state, (gaps, status) = stepped(told, process, np.arange(process.n_steps), key)
    assert not status.any()
    return np.asarray(gaps).ravel()[: process.horizon], state


@pytest.mark.parametrize("few", deep([True, False], keep=(0,)), ids=["arms last", "agents last"])
@pytest.mark.parametrize("family", deep(list(FAMILIES), keep=(0,)))
def test_stored_and_fused_agree(family, few, key, monkeypatch):
    """And groups of agents that add up: of two, the last of which has an agent too many, or of sixteen."""
    monkeypatch.setattr("fedbandit_jax.core.choose.LANES", 64 if few else 1)
    process = runner(GAP, family, 40)
    assert process.hints.contexts == "drawn"
    fused, last = play(process, key)
    assert fused.sum() > 0
    np.testing.assert_allclose(play(dataclasses.replace(process, shared=True), key)[0], fused, atol=1e-5)
    if process.algo.adds:
        monkeypatch.setattr(drawn, "GROUP", 2 if few else 8)  # 5 >= 2 * 2: groups; 5 > 8 / 2: one, of whole vectors
        parts, state = play(process, key)
        np.testing.assert_allclose(parts, fused, atol=1e-5)
        np.testing.assert_allclose(state.ledger.mechanism.sums.high, last.ledger.mechanism.sums.high, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "contexts"), [("LinUCB", "fresh"), ("FedLinUCB", "fresh"), ("FedLinUCB", "fixed")])
def test_a_gpu_adds_up_round_by_round(family, contexts, key, monkeypatch):
    """It keeps no records of a batch but those that do not add up, of agents who learn alone."""
    env = fb.envs.sphere(5, 6, 4, contexts=contexts)
    process = runner(env, family)
    assert (process.hints.contexts == "drawn", process.algo.adds) == (contexts == "fresh", family == "FedLinUCB")
    whole, last = play(process, key)
    gathered, gather = [], type(process.algo).gather
    monkeypatch.setattr(type(process.algo), "gather", lambda algo, x: gathered.append(x) or gather(algo, x))
    for module in (batch, drawn, control):
        monkeypatch.setattr(module, "on_cpu", lambda: False)
    parts, state = play(process, key)
    np.testing.assert_allclose(parts, whole, atol=1e-5)
    if process.algo.adds:
        assert {len(v) for _, v, *_ in gathered} == {1}
        np.testing.assert_allclose(state.ledger.mechanism.sums.high, last.ledger.mechanism.sums.high, atol=1e-5)


def fields(part):
    return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}


def redefining(kind, *methods):
    """A class of one's own that redefines these methods, though they do the same."""
    do = {name: lambda self, *given, name=name: getattr(kind, name)(self, *given) for name in methods}
    return fb.pytree(type("Own", (kind,), do))


def test_who_redefines_observe_is_asked():
    """Fresh contexts of the package are drawn while they are scored; what users redefine is run, and so is the rest."""
    bound = FAMILIES["FedLinUCB"].bind(GAP.spec, 8)

    class Half:
        spec = GAP.spec
        features_at, observe, pull = type(GAP).features_at, type(GAP).observe, type(GAP).pull

    own, mine = redefining(type(GAP), "observe"), redefining(type(bound))
    thompson = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=4).bind(GAP.spec, 8)
    pairs = [(own(**fields(GAP)), bound), (Half(), bound), (GAP, mine(**fields(bound))), (GAP, thompson)]
    pairs += [(long := fb.envs.sphere(5, 6, 23), FAMILIES["FedLinUCB"].bind(long.spec, 8))]
    assert not any(Synchronous(env=env, algo=algo, horizon=8).hints.contexts == "drawn" for env, algo in pairs)
    assert all(runner(env).hints.contexts == "drawn" for env in (GAP, fb.envs.sphere(5, 6, 4)))


# Tiles of the rows that agents are offered: the same arms, rewards and regret as with padded contexts.

SIZES = np.array([1, 2, 16, 1, 3, 5, 4, 2, 1])


def table(dim):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(SIZES.sum(), dim)).astype(np.float32)
    theta = rng.normal(size=dim).astype(np.float32)
    x, theta = x / np.linalg.norm(x, axis=1, keepdims=True), theta / np.linalg.norm(theta)
    return fb.envs.replay(x, SIZES, theta, n_agents=5)


FAMILIES["greedy"] = fb.algos.Federated(policy=fb.algos.Greedy(), schedule=4)  # to which all rows are alike at first


@pytest.mark.parametrize("dim", deep([4, 23], keep=(0,)))
@pytest.mark.parametrize("family", deep(list(FAMILIES), keep=(0, -1)))
def test_listed_and_padded_agree(family, dim, key, monkeypatch):
    monkeypatch.setattr(choose, "ROWS", 2)
    env = table(dim)
    process = runner(env, family, 40)
    padded = dataclasses.replace(process, env=dataclasses.replace(env, ragged=False))
    assert (process.hints.contexts, padded.hints.contexts) == ("table", "stored")
    listed, _ = play(process, key)
    assert listed.sum() > 0
    np.testing.assert_allclose(listed, play(padded, key)[0], atol=1e-5)


def test_tiles_of_a_wide_table_in_several_lanes(monkeypatch):
    """Above `UNROLL_DIM` features a tile is a matrix product. Lanes have queues of unequal lengths, an agent a NaN."""
    monkeypatch.setattr(choose, "ROWS", 4)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(23, 50)).astype(np.float32)
    theta = rng.normal(size=(2, 23, 3)).astype(np.float32)
    theta[1, 0, 2] = np.nan
    half = rng.normal(size=(2, 3, 23, 23)).astype(np.float32)
    inverse = half @ half.transpose(0, 1, 3, 2)
    first, count = np.array([[0, 5, 20], [3, 0, 9]]), np.array([[5, 15, 1], [4, 2, 16]])

    def lane(inverse, theta, first, count):
        scorer = Scorer(Posterior(inverse, theta), jnp.arange(3.0))
        drawn = Lots(jnp.arange(16, dtype=jnp.uint32) << 8, jnp.zeros(3, jnp.uint32))  # in the order of arms
        return choose.choose_rows(rows, scorer, lambda x: -x[0], 16, drawn, first, count)

    def rows(first, size):
        return jax.lax.dynamic_slice(jnp.asarray(x), (0, first), (23, size))

    arms, best = jax.jit(jax.vmap(lane))(inverse, theta, first, count)
    for s in range(2):
        for agent in range(3):
            offered = x[:, first[s, agent] :][:, : count[s, agent]]
            width_sq = np.einsum("dk,de,ek->k", offered, inverse[s, agent], offered)
            worth = theta[s, :, agent] @ offered + agent * np.sqrt(width_sq)
            assert arms[s, agent] == (NOWHERE if np.isnan(worth).any() else worth.argmax())
            assert best[s, agent] == -offered[0].min()


def test_own_environments(key):
    """What an environment redefines is what is played. Tiles are used where padding would be most of the work."""
    saves = [choose.tiles_save(np.array([size] * 3 + [last])) for size, last in ((64, 400), (64, 100), (10, 20))]
    assert saves == [True, False, False]  # of the second five tiles of 64 rows are no less than four queries of 100
    env = dataclasses.replace(table(4), ragged=True)
    kind = type(env)

    class Few(redefining(kind, "observe", "listed", "pull")):
        def rows_at(self, first, size):
            assert size <= self.spec.n_arms
            return super().rows_at(first, size)

    algo = FAMILIES["FedLinUCB"].bind(env.spec, 8)
    kinds = {kind: True, Few: False, redefining(Few, "mean_at", "reward_at"): True}
    kinds |= {redefining(kind, name): False for name in ("observe", "pull")}
    for one, lists in kinds.items():
        made = Synchronous(env=one(**fields(env)), algo=algo, horizon=8)
        assert (made.hints.contexts == "table") == lists
        if lists:
            jax.eval_shape(made.step, key, *jax.eval_shape(made.init, key), 0)
