"""Contexts that are never stored: the same arms, rewards and regret as with contexts that are, for every family."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep

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


def clock(env, family="FedLinUCB", horizon=12):
    return RoundClock(env=env, algo=FAMILIES[family].bind(env.spec, horizon), horizon=horizon)


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


@pytest.mark.parametrize("few", deep([True, False], keep=(0,)), ids=["arms last", "agents last"])
@pytest.mark.parametrize("family", deep(list(FAMILIES), keep=(0,)))
def test_stored_and_fused_agree(family, few, key, monkeypatch):
    monkeypatch.setattr("fedbandit_jax.core.choose.LANES", 64 if few else 1)
    process = clock(GAP, family, 40)
    assert process.draws
    fused, stored = play(process, key)[0], play(dataclasses.replace(process, shared=True), key)[0]
    assert fused.sum() > 0
    np.testing.assert_allclose(fused, stored, atol=1e-5)


@pytest.mark.slow  # by default `test_choose_gpu` compares the kernel with stored contexts
@pytest.mark.parametrize("make", [fb.envs.gap, fb.envs.sphere])
def test_kernel_and_fused_agree(make, key, monkeypatch):
    """The kernel of a GPU, in Pallas' interpreter. Agents have estimates at first, without which arms would be ties."""
    env = make(5, 6, 4)
    process = clock(env)
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


@pytest.mark.parametrize("size", deep([2, 8], keep=(0,)))
def test_groups_of_agents_add_up(key, size, monkeypatch):
    """Groups of two, of which the last has an agent too many, and one group of sixteen, are the five agents."""
    process = clock(GAP)
    assert process.algo.adds
    whole, last = play(process, key)
    monkeypatch.setattr(drawn, "GROUP", size)  # 5 >= 2 * 2: groups; 5 > 8 / 2: one group, of whole vectors
    parts, state = play(process, key)
    np.testing.assert_allclose(parts, whole, atol=1e-5)
    np.testing.assert_allclose(state.mechanism.sums.high, last.mechanism.sums.high, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "contexts"), [("LinUCB", "fresh"), ("FedLinUCB", "fresh"), ("FedLinUCB", "fixed")])
def test_a_gpu_adds_up_round_by_round(family, contexts, key, monkeypatch):
    """It keeps no records of a batch but those that do not add up, of agents who learn alone."""
    env = fb.envs.sphere(5, 6, 4, contexts=contexts)
    process = clock(env, family)
    assert (process.draws, process.algo.adds) == (contexts == "fresh", family == "FedLinUCB")
    whole, last = play(process, key)
    gathered, gather = [], type(process.algo).gather
    monkeypatch.setattr(type(process.algo), "gather", lambda algo, x: gathered.append(x) or gather(algo, x))
    for module in (batch, drawn, control):
        monkeypatch.setattr(module, "on_cpu", lambda: False)
    parts, state = play(process, key)
    np.testing.assert_allclose(parts, whole, atol=1e-5)
    if process.algo.adds:
        assert {len(records.v) for records in gathered} == {1}
        np.testing.assert_allclose(state.mechanism.sums.high, last.mechanism.sums.high, atol=1e-5)


def test_who_redefines_observe_is_asked():
    """Fresh contexts of the package are drawn while they are scored; what users redefine is run, and so is the rest."""
    fields = lambda part: {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}  # noqa: E731
    bound = FAMILIES["FedLinUCB"].bind(GAP.spec, 8)

    @fb.pytree
    class First(type(GAP)):
        def observe(self, key, world, t):
            offered, world = super().observe(key, world, t)
            return Round(offered.contexts[:, ::-1]), world

    class Half:
        """Features without their means."""

        spec = GAP.spec
        features_at, observe, pull = type(GAP).features_at, type(GAP).observe, type(GAP).pull

    @fb.pytree
    class Mine(type(bound)):
        pass

    thompson = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=4).bind(GAP.spec, 8)
    pairs = [(First(**fields(GAP)), bound), (Half(), bound), (GAP, Mine(**fields(bound))), (GAP, thompson)]
    pairs += [(long := fb.envs.sphere(5, 6, 23), FAMILIES["FedLinUCB"].bind(long.spec, 8))]
    assert not any(RoundClock(env=env, algo=algo, horizon=8).draws for env, algo in pairs)
    assert all(clock(env).draws for env in (GAP, fb.envs.sphere(5, 6, 4)))
