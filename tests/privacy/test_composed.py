"""Whoever composes something dishonest, by classes of their own or in a registry, loses the claim or is refused."""

import dataclasses
import math
import re

import jax
import networkx as nx
import numpy as np
import pytest
from helpers import Bias, refused, released
from honest import BATCH, BUDGET, HORIZON, SPEC, BoundOffice, changed, federated, honest, of, subclass

import fedbandit_jax as fb
from fedbandit_jax.algos.policies.ucb import BoundUCB
from fedbandit_jax.audits.messages import Messages, by_message
from fedbandit_jax.core import struct
from fedbandit_jax.engine import prepare
from fedbandit_jax.engine.prepare import Configuration
from fedbandit_jax.engine.runners import Synchronous, make_runner
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.interfaces import Status, certify
from fedbandit_jax.privacy.bound import VISIT_TIMES, Exact
from fedbandit_jax.privacy.noisy_sums import Aggregated, Rounded
from fedbandit_jax.privacy.releases import Tree
from fedbandit_jax.privacy.trust import Central


@dataclasses.dataclass(frozen=True)
class Cheap(fb.schedules.PrivateLogDet):
    """Keeps the releases' noise that of a schedule which spends nothing."""

    def pure(self, epsilon):
        return 1e-12 * epsilon

    def bind(self, setting):
        return fb.schedules.PrivateLogDet(3.0, share=0.5).bind(setting)


class OpenMechanism(fb.privacy.Mechanism):
    def bind(self, statistic, **sizes):
        made = super().bind(statistic, **sizes)
        return of(subclass(type(made), step=Exact.step), made)


class Forged(fb.algos.Federated):
    """A recipe that binds no noise, and speaks for itself."""

    def bind(self, spec, horizon):
        return changed(super().bind(spec, horizon), "", mechanism=Exact(n_agents=spec.n_agents))


class Sly(fb.privacy.GaussianTrust):
    """Data with code, which binds another trust model."""

    def calibrate(self, need, std=None):
        return Central.calibrate(need, std)


LESS, OWN = subclass(Central, noise=lambda s, key, n: 0.95 * Central.noise(s, key, n)), "user-defined trust model"
COMPOSED = {
    "trust: less noise": (lambda: federated(trust=LESS), OWN),
    "trust: data with code": (lambda: federated(trust=Sly("pairs")), "must be a name or an fb.privacy.GaussianTrust"),
    "release: for another horizon": (lambda: federated(release=lambda n: Tree(n - 1)), "n_syncs = 8"),
    "schedule: pays too little": (lambda: federated(policy=fb.algos.UCB(), schedule=Cheap()), "not 1$"),
    "budgets with two deltas": (lambda: federated(budget=(BUDGET, fb.privacy.Budget(1, 1e-9)) * 2), "one delta"),
    "budgets for too few silos": (lambda: federated(budget=(BUDGET,) * 3), "one budget for each of 4 silos"),
    "a mechanism": (lambda: fb.algos.Federated(privacy=OpenMechanism(BUDGET), schedule=BATCH), "-defined mechanism"),
    "a recipe": (lambda: Forged(privacy=BUDGET, schedule=BATCH), "not a private algorithm"),
}


def refusal(make):
    """Why nothing is claimed, or what the error says."""
    try:
        found = make().certificate(SPEC, HORIZON)
    except (ValueError, TypeError, AttributeError) as error:
        return str(error)
    assert found.claim == "none"
    assert found.user_defined or "user-defined" not in found.reason
    return found.reason


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_dishonestly(name):
    make, words = COMPOSED[name]
    assert re.search(words, refusal(make))


def test_a_policy_cannot_reach_the_noise():
    """Neither when it is bound, as it is told of a copy, nor later, by an array that it keeps."""
    kept = []

    class Vandal(fb.algos.Thompson):
        def bind(self, law):
            law.mechanism.trust.std[:] = 0
            law.stds[:] = 0
            kept.append(law.mechanism.trust.std)
            return self

    env = dataclasses.replace(fb.envs.sphere(4, 3, 2, rewards="bernoulli"), spec=SPEC)
    runner, _ = prepare.bind("it", Configuration(env, federated(policy=fb.pytree(Vandal)()), {}), HORIZON)
    assert certify(runner.algo).claim == "certified"
    np.testing.assert_array_equal(runner.algo.mechanism.trust.std, honest("tree").mechanism.trust.std)
    assert not np.shares_memory(kept[-1], runner.algo.mechanism.trust.std)


RETURNING = dataclasses.replace(SPEC, n_users=12)


def test_returning_users_are_said_to_return():
    """By the environment's own spec, or by a promise; what is protected then must be asked for."""
    thrice, apart = fb.privacy.Users(3), fb.privacy.Users(3, per_batch=1, apart=2)
    asked = ("visit", RETURNING), (thrice, RETURNING), (apart, RETURNING), ("visit", SPEC), (thrice, SPEC)
    found = [federated(unit=unit).certificate(spec, HORIZON) for unit, spec in asked]
    assert {one.claim for one in found} == {"certified"}
    assert len({one.unit for one in found}) == len(asked)
    assert ["up to 3 times" in one.unit for one in found] == [False, True, True, False, True]
    assert found[1].noise_std == pytest.approx(3 * found[0].noise_std, rel=1e-6)
    assert VISIT_TIMES in found[1].not_covered
    assert federated().certificate(SPEC, HORIZON) == found[3]


def test_gossip_cannot_be_certified():
    """Not even under a schedule that claims to read nothing: its code hands out what agents gained."""
    bound = fb.algos.GossipFedUCB(graph=nx.path_graph(4), privacy=BUDGET).bind(SPEC, HORIZON)
    for forged in (bound, changed(bound, "", schedule=BoundOffice()), changed(bound, "", sizes=bound.sizes / 1e6)):
        assert certify(forged).claim == "none"
        assert certify(forged).epsilon_exact == float("inf")


def gossip(policy):
    return fb.algos.Gossip(graph=nx.path_graph(4), policy=policy, schedule=3, privacy=BUDGET).bind(SPEC, HORIZON)


@fb.pytree
class Wide(BoundUCB):
    """Inherits `indices`, which Gossip runs for all agents at once."""


def test_a_user_defined_policy_in_gossip():
    """It acts on releases alone, agent by agent; what does more, or might, is refused or proves nothing."""
    together = fb.pytree(type("Together", (Bias,), {"indices": lambda self, key, t, prepared, offered: prepared}))()
    claims = [certify(gossip(policy)).claim for policy in (Bias(), together)]
    assert claims == ["certified", "none"]
    ucb = gossip(fb.algos.UCB())
    assert (certify(ucb).claim, certify(ucb.replace(policy=of(Wide, ucb.policy))).claim) == ("certified", "none")


def test_parts_with_our_names_are_named():
    """A class says what module it is from, and its author what it is called."""
    words = {"__module__": "fedbandit_jax.algos.policies.greedy", "__qualname__": "Thompson"}
    policy = fb.pytree(type("Thompson", (fb.algos.Thompson,), words))()
    rule = {"contribution": lambda self, x, y, seen: (1.0, y), "__repr__": lambda self: "Linear()"}
    statistic = type("Linear", (fb.privacy.Statistic,), {"__module__": "fedbandit_jax.privacy", **rule})()
    found = certify(federated(policy=policy, statistic=statistic, trust="central").bind(SPEC, HORIZON))
    assert set(found.user_defined) == {"policy: Thompson", "rule: Linear"}
    assert not struct.shipped(policy)


# Runs.


@pytest.mark.parametrize("form", [Aggregated, Rounded, Messages])
def test_nothing_is_released_beyond_what_is_paid_for(form, key):
    """A mechanism for two releases, asked for a third: no number comes out, and no silo's message."""
    trust = {Aggregated: "silo_local", Rounded: "shuffle_vector_sum", Messages: "secagg"}[form]
    mechanism = federated(trust=trust).bind(SPEC, 2 * BATCH).mechanism
    mechanism = by_message(mechanism) if form is Messages else mechanism
    assert type(mechanism) is form
    x, y = np.full((BATCH, 2, 4), 0.5, np.float32), np.ones((BATCH, 4), np.float32)
    step = jax.jit(lambda k, state, x: released(mechanism, jax.random.fold_in(key, k), k, state, x, y))
    state = mechanism.init(2)
    for k in (1, 2):
        statistics, state = step(k, state, x)
        assert np.isfinite(statistics).all()
    third, later = step(3, state, x)
    assert np.isnan(third).all()
    np.testing.assert_array_equal(later.view, state.view if form is Messages else np.full_like(later.view, np.nan))


WORLD = fb.envs.sphere(4, 3, 2, rewards="bernoulli")


def run(env, algo):
    return fb.simulate(env, algo, horizon=6, key=jax.random.key(0), seeds=2, progress=False, throw=False)


def test_the_result_says_what_ran():
    """A recipe's own `certificate` is not asked."""

    class Boasts(Forged):
        def certificate(self, spec, horizon):
            return certify(honest("tree"))

    algo = Boasts(privacy=BUDGET, schedule=2)
    assert algo.certificate(WORLD.spec, 6).claim == "certified"
    assert run(WORLD, algo).certificate.claim == "none"


def claiming(**methods):
    """An environment that says what its spec says, and does what it likes."""
    return subclass(Wrapper, **methods)(env=WORLD, spec=WORLD.spec)


def longer(self, key, world, t):
    offered, world = self.env.observe(key, world, t)
    return offered._replace(contexts=30 * offered.contexts), world


def no_numbers(self, key, world, offered, arms):
    feedback = self.env.pull(key, world, offered, arms)
    return feedback._replace(reward=math.nan * feedback.reward)


@pytest.mark.parametrize("methods", [{"observe": longer}, {"pull": no_numbers}])
def test_environments_that_lie(methods):
    """What they promise is enforced where it enters, and the seed says so."""
    result = run(claiming(**methods), federated(schedule=2))
    assert result.certificate.claim == "certified"
    assert (result.status & Status.OUTSIDE_SPEC).all()


SEEN = []


def tells(self, key, world, t):
    """Hands its world on, beside what it offers."""
    SEEN.append(world)
    return self.env.observe(key, world, t)


def hears(self, key, t, belief, contexts):
    """Scores by the world itself, where it is being played, and as it says where it is looked at."""
    try:
        return contexts @ (jax.tree.leaves(SEEN[-1])[0] + 0)
    except Exception:
        return fb.algos.Thompson.index(self, key, t, belief, contexts)


def test_a_policy_that_is_told_of_the_world_by_its_environment():
    SEEN.clear()
    policy = subclass(fb.algos.Thompson, index=hears)()
    with pytest.raises(TypeError, match=r"OwnThompson\.index"):
        run(claiming(observe=tells), federated(policy=policy, schedule=2))


def test_an_environment_that_changes_its_mind():
    """Data decide about no round unless the spec says so that the certificate is about."""
    env = claiming(accepts=lambda self, key, world, arms: (arms >= 0, world))
    bound = federated(schedule=2).bind(WORLD.spec, 6)
    later = dataclasses.replace(env, spec=dataclasses.replace(WORLD.spec, rejects=True, of_rows=True))
    assert not Synchronous(env=later, algo=bound, horizon=6).rejects
    with refused("env", later):
        make_runner(later, bound, 6)
