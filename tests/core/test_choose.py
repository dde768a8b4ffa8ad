"""Contexts that are never stored: the same arms, rewards and regret as with contexts that are, for every family."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.core import control
from fedbandit_jax.engine.clocks import RoundClock, batch, drawn
from fedbandit_jax.interfaces import Round

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


def play(process, key):
    """Regret of every round, and the last state."""

    @jax.jit
    def run(process, key):
        def body(carry, k):
            world, state, metrics = process.step(key, *carry, k)
            return (world, state), (metrics.gap, metrics.report.status)

        (_, state), metrics = jax.lax.scan(body, process.init(key), jnp.arange(steps))
        return *metrics, state

    steps = process.n_steps
    gaps, status, state = run(process, key)
    assert not status.any()
    return np.asarray(gaps).ravel()[: process.horizon], state


def both(process, key):
    """The regrets of a process that draws while it scores, and of one that stores what it has drawn."""
    assert process.draws
    return play(process, key)[0], play(dataclasses.replace(process, shared=True), key)[0]


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["arms last", "agents last"])
@pytest.mark.parametrize(
    "family", ["FedLinUCB", *(pytest.param(name, marks=pytest.mark.slow) for name in list(FAMILIES)[1:])]
)
def test_stored_and_fused_agree(family, few, key, monkeypatch):
    monkeypatch.setattr("fedbandit_jax.core.choose.LANES", 64 if few else 1)
    process = RoundClock(env=GAP, algo=FAMILIES[family].bind(GAP.spec, 40), horizon=40)
    fused, stored = both(process, key)
    assert fused.sum() > 0
    np.testing.assert_allclose(fused, stored, atol=1e-5)


@pytest.mark.slow  # by default `test_choose_gpu` compares the kernel with stored contexts
@pytest.mark.parametrize("make", [fb.envs.gap, fb.envs.sphere])
def test_kernel_and_fused_agree(make, key, monkeypatch):
    """The kernel of a GPU, in Pallas' interpreter. Agents have estimates at first, without which arms would be ties."""
    env = make(5, 6, 4)
    process = RoundClock(env=env, algo=FAMILIES["FedLinUCB"].bind(env.spec, 12), horizon=12)
    world, state = jax.jit(process.init)(key)
    posterior = state.belief.posterior._replace(theta=jnp.array([[0.3], [-0.2], [0.5], [0.1]]))
    state = state._replace(belief=state.belief._replace(posterior=posterior))
    asked = []

    def gaps(kernel):
        monkeypatch.setattr("fedbandit_jax.core.choose.on_gpu", lambda: asked.append(kernel) or kernel)
        step = jax.jit(lambda *carry: process.step(key, *carry))
        now, found = (world, state), []
        for k in range(process.n_steps):
            *now, metrics = step(*now, jnp.int32(k))
            assert not metrics.report.status
            found.append(metrics.gap)
        return np.concatenate(found)

    fused, kernel = gaps(False), gaps(True)
    assert set(asked) == {False, True}
    assert fused.sum() > 0
    np.testing.assert_allclose(kernel, fused, atol=1e-5)


@pytest.mark.parametrize("size", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_groups_of_agents_add_up(key, size, monkeypatch):
    """Groups of two, of which the last has an agent too many, and one group of sixteen, are the five agents."""
    process = RoundClock(env=GAP, algo=FAMILIES["FedLinUCB"].bind(GAP.spec, 12), horizon=12)
    assert process.algo.adds
    whole, last = play(process, key)
    monkeypatch.setattr(drawn, "GROUP", size)  # 5 >= 2 * 2: groups; 5 > 8 / 2: one group, of whole vectors
    parts, state = play(process, key)
    np.testing.assert_allclose(parts, whole, atol=1e-5)
    np.testing.assert_allclose(state.mechanism.sums.high, last.mechanism.sums.high, atol=1e-5)


@pytest.mark.slow
def test_a_gpu_keeps_the_records_that_do_not_add_up(key, monkeypatch):
    """Those of agents who learn alone; the plain program of another device is compiled here for a CPU."""
    process = RoundClock(env=GAP, algo=FAMILIES["LinUCB"].bind(GAP.spec, 12), horizon=12)
    assert not process.algo.adds
    whole, _ = play(process, key)
    for module in (batch, drawn, control):
        monkeypatch.setattr(module, "on_cpu", lambda: False)
    np.testing.assert_allclose(play(process, key)[0], whole, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("contexts", ["fresh", "fixed"])
def test_a_gpu_adds_up_round_by_round(contexts, key, monkeypatch):
    """It keeps no records of a batch."""
    env = fb.envs.sphere(5, 6, 4, contexts=contexts)
    process = RoundClock(env=env, algo=FAMILIES["FedLinUCB"].bind(env.spec, 12), horizon=12)
    assert process.draws == (contexts == "fresh")
    whole, last = play(process, key)
    gathered = []
    for module in (batch, drawn):
        monkeypatch.setattr(module, "on_cpu", lambda: False)
    monkeypatch.setattr(type(process.algo), "gather", watched(type(process.algo).gather, gathered))
    parts, state = play(process, key)
    assert {len(records.v) for records in gathered} == {1}
    np.testing.assert_allclose(parts, whole, atol=1e-5)
    np.testing.assert_allclose(state.mechanism.sums.high, last.mechanism.sums.high, atol=1e-5)


def watched(gather, seen):
    """Returns the method `gather` that also notes its argument."""

    def watching(self, records):
        seen.append(records)
        return gather(self, records)

    return watching


@pytest.mark.slow
def test_long_directions_are_stored(key):
    env = fb.envs.sphere(2, 3, 23)
    process = RoundClock(env=env, algo=fb.algos.fed_lin_ucb(schedule=4).bind(env.spec, 8), horizon=8)
    assert not process.draws
    assert (play(process, key)[0] >= 0).all()


@pytest.mark.parametrize("env", [fb.envs.sphere(5, 6, 4), GAP], ids=["sphere", "gap"])
def test_fresh_contexts_of_the_package_are_drawn(env):
    assert RoundClock(env=env, algo=FAMILIES["FedLinUCB"].bind(env.spec, 12), horizon=12).draws


def test_who_redefines_observe_is_asked():
    """An environment whose `observe` is its own is run by it, not by the draws that it has inherited."""

    @fb.pytree
    class First(type(GAP)):
        def observe(self, key, world, t):
            offered, world = super().observe(key, world, t)
            return Round(offered.contexts[:, ::-1]), world

    own = First(**{field.name: getattr(GAP, field.name) for field in dataclasses.fields(GAP)})
    bound = FAMILIES["FedLinUCB"].bind(GAP.spec, 8)
    assert not RoundClock(env=own, algo=bound, horizon=8).draws

    class Half:
        """Features without their means."""

        spec = GAP.spec
        features_at, observe, pull = type(GAP).features_at, type(GAP).observe, type(GAP).pull

    assert not RoundClock(env=Half(), algo=bound, horizon=8).draws

    @fb.pytree
    class Mine(type(bound)):
        pass

    changed = Mine(**{field.name: getattr(bound, field.name) for field in dataclasses.fields(bound)})
    assert not RoundClock(env=GAP, algo=changed, horizon=8).draws
    thompson = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=4).bind(GAP.spec, 8)
    assert not RoundClock(env=GAP, algo=thompson, horizon=8).draws
