"""Whoever composes something dishonest, by classes of his own or in a registry, loses the claim or is refused."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from helpers import Prefixes
from honest import (
    BATCH,
    BUDGET,
    HORIZON,
    SPEC,
    BoundOffice,
    Office,
    changed,
    federated,
    honest,
    nosy,
    of,
    subclass,
)

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import RELEASES, TRUST, GaussianTrust
from fedbandit_jax.privacy.admission import Admitted, BoundStatistic
from fedbandit_jax.privacy.bound import Exact
from fedbandit_jax.privacy.releases import Blt, PrefixTree, Tree, explicit
from fedbandit_jax.privacy.trust import Central, SecAgg, SiloLocal


def trust(**methods):
    return lambda: federated(trust=subclass(Central, **methods))


def normal(self, key, size):
    return Central.noise(self, key, size)


traced = []


def second_thoughts(self, key, size):
    """Noise in the first trace, which may be somebody's check, and none in the next."""
    traced.append(key)
    return normal(self, key, size) * (len(traced) == 1)


def release(parent=Prefixes, **methods):
    return lambda: federated(release=type("Own", (parent,), methods))


def bent(self, state, k, gamma):
    """Twice what was asked for, from message 7 on, for those who give more than a little."""
    large = jnp.where((k > 6) & (abs(gamma) > 0.5), 2, 1)
    return (state + large * gamma)[None], state + gamma


@dataclasses.dataclass(frozen=True)
class Cheap(fb.schedules.PrivateLogDet):
    """Keeps the releases' noise that of a schedule which spends nothing."""

    def pure(self, epsilon):
        return 1e-12 * epsilon

    def bind(self, setting):
        return fb.schedules.PrivateLogDet(3.0, share=0.5).bind(setting)


@dataclasses.dataclass(frozen=True)
class EasyBudget(fb.privacy.Budget):
    joint_sensitivity_sq = 1e-6


class OpenMechanism(fb.privacy.Mechanism):
    def bind(self, statistic, **sizes):
        made = super().bind(statistic, **sizes)
        return of(subclass(type(made), step=Exact.step), made)


COMPOSED = {
    "trust: noise / 10": (trust(noise=lambda s, key, n: normal(s, key, n) / 10), "trust model of its own"),
    "trust: noise * 0.95": (trust(noise=lambda s, key, n: normal(s, key, n) * 0.95), "trust model of its own"),
    "trust: ignores its key": (
        trust(noise=lambda s, key, n: normal(s, jax.random.key(0), n)),
        "trust model of its own",
    ),
    "trust: correlated": (trust(noise=lambda s, key, n: normal(s, key, n).at[2].set(normal(s, key, n)[0])), "its own"),
    "trust: Laplace": (trust(noise=lambda s, key, n: s.std * jax.random.laplace(key, (n,)) / 2**0.5), "its own"),
    "trust: second thoughts": (trust(noise=second_thoughts), "trust model of its own"),
    "trust: its own proof": (trust(proof=lambda s, ask: SiloLocal.proof(s, ask)), "trust model of its own"),
    "trust: its own sum": (trust(sum_std=lambda s: 1e-3), "trust model of its own"),
    "trust: a state": (trust(init=lambda s, size: jnp.zeros(size)), "trust model of its own"),
    "trust: no source": (
        lambda: federated(trust=GaussianTrust("mine", sources=lambda ask: 1e-4)),
        "sources must be an integer",
    ),
    "trust: calibrated to little": (
        trust(calibrate=classmethod(lambda cls, ask, method: cls(std=np.float32(0.1)))),
        "trust model of its own",
    ),
    "trust: no Gaussian one": (lambda: federated(trust=subclass(SecAgg, sentence="mine")), "trust model of its own"),
    "release: nonlinear later": (release(encode=bent), "sum of all batches"),
    "release: sums left out": (release(decode=lambda s, state, k, m: (m[0] * (k < 5), state)), "sum of all batches"),
    "release: for another horizon": (lambda: federated(release=lambda n: Tree(n - 1)), "n_syncs = 8"),
    "release: no release": (lambda: federated(release=lambda n: n), "must make an fb.privacy.Release"),
    "schedule: pays too little": (lambda: federated(policy=fb.algos.UCB(), schedule=Cheap()), "not 1$"),
    "schedule: unknown reading": (
        lambda: federated(policy=fb.algos.UCB(), schedule=Office(nosy(reads="everything"))),
        "reads must be one of",
    ),
    "schedule: no schedule": (lambda: federated(schedule=Office(bound=None)), "must return an fb.schedules"),
    "budgets with two deltas": (lambda: federated(budget=(BUDGET, fb.privacy.Budget(1, 1e-9)) * 2), "one delta"),
    "budgets for too few silos": (lambda: federated(budget=(BUDGET,) * 3), "one budget for each of 4 silos"),
    "budget with a sensitivity": (lambda: federated(budget=EasyBudget(1.0, 0.1)), "not 1$"),
    "mechanism of its own": (
        lambda: fb.algos.Federated(policy=fb.algos.Thompson(), privacy=OpenMechanism(BUDGET), schedule=BATCH),
        "is a mechanism of its own",
    ),
    "shuffled prefixes": (lambda: federated(trust="shuffle_amplified", release="blt"), "release must be 'tree'"),
    "schedule under secure aggregation": (
        lambda: federated(policy=fb.algos.UCB(), trust="secagg", schedule=fb.schedules.PrivateLogDet()),
        "schedule whose batches are not fixed",
    ),
    "as the authors' code": (lambda: federated(calibration="authors"), "'authors' noise gives"),
}


def refusal(make):
    """Why nothing is claimed, or what the error says."""
    try:
        found = make().certificate(SPEC, HORIZON)
    except (ValueError, TypeError, AttributeError) as error:
        return str(error)
    assert found.claim == "none"
    return found.reason


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_dishonestly(name):
    make, words = COMPOSED[name]
    assert re.search(words, refusal(make))


@pytest.mark.parametrize(
    ("registry", "name", "value", "options", "words"),
    [
        (RELEASES, "tree", Blt, {"trust": "shuffle_amplified"}, "release must be"),
        (RELEASES, "tree", lambda n: Tree(2 * n), {}, "for n_syncs = 8"),
        (RELEASES, "blt", PrefixTree, {"release": "blt", "trust": "secagg"}, "prefix sums"),
        (TRUST, "silo_local", subclass(SiloLocal, noise=lambda s, key, n: jnp.zeros(n)), {}, "trust model of its own"),
        (TRUST, "silo_local", subclass(SiloLocal), {}, "its own|put in after binding"),
        (TRUST, "secagg", object, {"trust": "secagg"}, "attribute|Trust"),
    ],
)
def test_registries_changed(monkeypatch, registry, name, value, options, words):
    monkeypatch.setitem(registry, name, value)
    assert re.search(words, refusal(lambda: federated(**options)))


def test_a_policy_cannot_reach_the_noise():
    """What `bind` is told of the mechanism is a copy."""

    class Vandal(fb.algos.Thompson):
        def bind(self, law):
            law.mechanism.trust.std[:] = 0
            law.stds[:] = 0
            return self

    bound = federated(policy=fb.pytree(Vandal)()).bind(SPEC, HORIZON)
    assert certify(bound).claim == "certified"
    assert (bound.mechanism.trust.std == honest("tree").mechanism.trust.std).all()


def test_what_is_not_live_is_not_sent():
    """Data in a part that is said not to be sent: there is none in the messages that are made."""

    class Smuggled(Prefixes):
        n_parts = 2

        def live(self, k):
            return jnp.array([True, False])

        def encode(self, state, k, gamma):
            return jnp.stack([state + gamma, 1e3 * gamma]), state + gamma

        def step(self, state, k, z):
            return z, state

    made = explicit(Smuggled(8))
    message = jax.jit(lambda: made.encode(made.encode_init((3,)), 1, jnp.ones(3))[0])()
    assert message.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert made.sensitivity_sq() == pytest.approx(8)
    assert federated(release=Smuggled).certificate(SPEC, HORIZON).claim == "certified"


@pytest.mark.parametrize(
    "methods",
    [{"step": lambda self, state, k, z: (0 * z, state)}, {"sensitivity_sq": lambda self: 1e-4}],
    ids=["step without noise", "less sensitivity"],
)
def test_a_release_is_its_matrices(methods):
    """What a class of one's own says beside `encode` and `decode` changes nothing."""
    found = release(**methods)().bind(SPEC, HORIZON)
    wanted = federated(release=Prefixes).bind(SPEC, HORIZON)
    assert dataclasses.replace(found.guarantee(), release="Prefixes") == wanted.guarantee()
    noise, one = (x.mechanism.release.noise_factor() for x in (found, wanted))
    np.testing.assert_array_equal(noise, one)
    assert found.mechanism.trust.std.tolist() == wanted.mechanism.trust.std.tolist()


def test_forged_classes_share_no_program():
    """A compiled program is found by equality of its static parts: a lookalike must not be equal to the honest one."""

    class Loose(BoundStatistic):
        def admit(self, x, y, seen=(), each=False):
            return Admitted(x, y, y < 0, y < 0)

    bound = honest("tree")
    one = bound.mechanism.statistic
    forged = changed(bound, "mechanism", statistic=of(Loose, one))
    assert jax.tree.structure(bound) != jax.tree.structure(forged)
    assert jax.tree.structure(bound) == jax.tree.structure(changed(bound, "mechanism.statistic", dim=2))


RETURNING = dataclasses.replace(SPEC, n_users=12)


def test_returning_users_are_said_to_return():
    """By the environment's own spec; what is protected then must be asked for."""
    found = federated(unit="visit").certificate(RETURNING, HORIZON)
    assert (found.claim, found.unit.split(";")[0]) == (
        "certified",
        "one interaction, i.e. what a user did in one round",
    )
    assert "users return in this environment, and nobody is protected in more rounds together" in found.unit
    thrice = federated(unit=fb.privacy.Users(3)).certificate(RETURNING, HORIZON)
    assert thrice.unit.startswith(
        "one user: all that she contributes, up to 3 times at a silo, always at the same silo "
        "(a promise: silos do not compare users);"
    )
    assert "silos leave out what is beyond" in thrice.unit
    assert "who comes when, and how often" in thrice.not_covered
    assert thrice.noise_std == pytest.approx(3 * found.noise_std, rel=1e-6)
    assert "counts as a new user" in federated().certificate(SPEC, HORIZON).unit
    assert federated().certificate(SPEC, HORIZON) == federated(unit="visit").certificate(SPEC, HORIZON)


@pytest.mark.parametrize(
    "algo",
    [
        federated(),
        federated(release="blt", trust="central"),
        federated(schedule=fb.schedules.Geometric()),
        federated(schedule=fb.schedules.PrivateLogDet(), policy=fb.algos.UCB()),
        federated(schedule=1000),  # longer than the run, so that nothing is released
        fb.algos.fed_ucb(BUDGET),
        fb.algos.GossipFedUCB(graph=nx.path_graph(SPEC.n_agents), privacy=BUDGET),
        fb.algos.Gossip(graph=nx.path_graph(SPEC.n_agents), privacy=BUDGET, schedule=2),
    ],
    ids=["tree", "blt", "geometric", "private", "closed", "FedUCB", "gossip", "neighbours"],
)
def test_returning_users_need_visits(algo):
    words = r"as the 12 users of this environment return, got None: fb.privacy.Mechanism\(budget, unit='visit'\)"
    with pytest.raises(ValueError, match=words):
        algo.bind(RETURNING, HORIZON)
    told = algo.replace(unit="visit") if algo.takes("unit") else algo
    assert told is not algo
    told.bind(RETURNING, HORIZON)


def test_gossip_cannot_be_certified():
    """Not even under a schedule that claims to read nothing: its code hands out what agents gained."""
    algo = fb.algos.GossipFedUCB(graph=nx.path_graph(4), privacy=BUDGET)
    bound = algo.bind(SPEC, HORIZON)
    for forged in (bound, changed(bound, "", schedule=BoundOffice()), changed(bound, "", sizes=bound.sizes / 1e6)):
        assert certify(forged).claim == "none"
        assert certify(forged).epsilon_exact == math.inf
