"""The check of noise by its behaviour: shipped mechanisms pass it, and broken ones do not, by 10 % and by reuse."""

import dataclasses
import itertools
import re

import jax
import jax.numpy as jnp
import pytest
from helpers import Prefixes
from honest import PAIRS, SPEC, of, subclass

import fedbandit_jax as fb
from fedbandit_jax.core import wide
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import MECHANISMS, RELEASES, TRUST, Decaying, behaviour, trust
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.integers.shares import PolyaNoise
from fedbandit_jax.privacy.noisy_sums import Aggregated
from fedbandit_jax.privacy.tails import normal
from fedbandit_jax.privacy.trust import SiloLocal

BUDGET = fb.privacy.Budget(1.0, 0.1)
OWN = {"decaying": Decaying(1.5), "own": Prefixes}


def bind(trust="silo_local", release="tree", n_syncs=5, m=3, dim=2, **options):
    recipe = fb.privacy.Mechanism(BUDGET, release=OWN.get(release, release), trust=trust, **options)
    return recipe.bind(BoundStatistic(dim), n_agents=m, n_syncs=n_syncs, batch=2)


def fitting():
    for model, release in itertools.product([*TRUST, PAIRS], [*RELEASES, *OWN]):
        try:
            trust.check(model, OWN.get(release, release), "tight")
        except ValueError:
            continue
        yield model, release


def cases():
    """Every pair that fits; by default every trust model with a tree, and every release at silos."""
    for model, release in fitting():
        name = model if isinstance(model, str) else "pairs"
        more = [pytest.mark.slow] * (model != "silo_local" and release != "tree")
        yield pytest.param(dict(trust=model, release=release), id=f"{name}-{release}", marks=more)
        if isinstance(model, str) and release in ("tree", "honaker", "prefix_tree", "input_perturbation"):
            bits = model == "shuffle_vector_sum"  # every bit of every user is drawn
            more = [pytest.mark.slow] * (bits or release != "tree")
            small = dict(m=1, dim=1, n_syncs=2) if bits else {}
            case = dict(trust=model, release=release, messages=True, **small)
            yield pytest.param(case, id=f"{name}-{release}-messages", marks=more)


@pytest.mark.parametrize("case", [*cases()])
def test_shipped_mechanisms_are_as_they_say(case):
    assert behaviour.fault(bind(**case)) == ""


def test_entries_may_be_scaled():
    recipe = fb.privacy.Mechanism(BUDGET, release="blt", statistic=fb.privacy.Linear(centred=True, gram_scale=0.5))
    bound = recipe.bind(BoundStatistic(2, constant=True), n_agents=3, n_syncs=5, batch=2)
    assert behaviour.fault(bound) == ""


def broken(*, part="trust", methods, **options):
    """A bound mechanism that overrides these methods, or whose trust model does."""
    bound = bind(**options)
    if part == "mechanism":
        return of(subclass(type(bound), **methods), bound)
    return dataclasses.replace(bound, trust=of(subclass(type(bound.trust), **methods), bound.trust))


def test_a_patched_class_is_seen(monkeypatch):
    """The package can be patched, and then no type tells; whoever certifies parts of their own is told."""
    bound = bind()
    policy, privacy = fb.algos.Thompson(), fb.privacy.Mechanism(BUDGET, release=Prefixes)
    whole = fb.algos.Federated(policy=policy, schedule=2, privacy=privacy).bind(SPEC, 10)
    assert certify(whole).claim == "certified"
    jax.clear_caches()
    behaviour._fault.cache_clear()  # a process measures one mechanism once
    monkeypatch.setattr(fb.privacy.TRUST["silo_local"], "noise", lambda self, key, size: jnp.zeros(size))
    try:
        assert "0 times the standard deviation" in behaviour.fault(bound)
        assert certify(whole).claim == "none"
        assert "0 times the standard deviation" in certify(whole).reason
    finally:
        jax.clear_caches()
        behaviour._fault.cache_clear()


@pytest.mark.parametrize("extra", [jnp.ones(3, jnp.bfloat16), jnp.zeros((0, 2)), jnp.float16(1)], ids=str)
def test_a_mechanism_may_hold_numbers_of_any_type(extra):
    bound = bind()
    mine = fb.pytree(type("Mine", (type(bound.trust),), {"__annotations__": {"extra": object}, "extra": 0.0}))
    assert behaviour.fault(dataclasses.replace(bound, trust=of(mine, bound.trust, extra=extra))) == ""


def scaled(by, method):
    """Methods that draw so much noise in place of what the class draws."""

    def noise(self, key, size):
        return by * type(self).__mro__[1].noise(self, key, size)

    def randomize(self, key, silo, k, message):
        return message + by * (type(self).__mro__[1].randomize(self, key, silo, k, message) - message)

    def noisy_sum(self, key, k, state, total, x, y):
        sums, state = type(self).__mro__[1].noisy_sum(self, key, k, state, total, x, y)
        return total + by * (sums - total), state

    return {method: {"noise": noise, "randomize": randomize, "noisy_sum": noisy_sum}[method]}


@pytest.mark.parametrize("by", [0.0, 0.9, pytest.param(1.1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("noise", {}),
        ("noise", {"trust": "silo_local_matrix", "release": "blt"}),
        ("noise", {"trust": "central", "release": "own", "dim": 4, "n_syncs": 20}),
        ("noise", {"n_syncs": 1, "dim": 1}),
        ("randomize", {"messages": True}),
        ("randomize", {"messages": True, "trust": "shuffle_amplified"}),
        ("noisy_sum", {"trust": "secagg", "release": "blt"}),
        ("noisy_sum", {"trust": "shuffle_vector_sum"}),
    ],
)
def test_wrong_scales_are_seen(method, options, by):
    assert "standard deviation that is stated" in behaviour.fault(broken(methods=scaled(by, method), **options))


def same_for_all_entries(self, key, size):
    return jnp.linalg.norm(self.std) * normal(key, ()) * jnp.ones(size)


def same_for_two_entries(self, key, size):
    noise = SiloLocal.noise(self, key, size)
    return noise.at[1].set(noise[0])


def same_for_all_draws(self, key, size):
    return SiloLocal.noise(self, jax.random.key(0), size)


def same_for_all_releases(self, key, k, state, total, x, y):
    """The noise of the first release is kept, and added to each."""
    sums = state.sums.add(total)
    kept = jnp.where(k == 1, self.trust.noise(key, 5), state.trust)
    noise, release = self.release.step(state.release, k, kept)
    statistics = sums.noisy(self.statistic.unpack(noise))
    return statistics, state._replace(sums=sums, release=release, trust=kept, view=statistics)


def same_for_all_silos(self, key, messages):
    return jnp.broadcast_to(messages[:1], messages.shape)


def mostly_one_silo(self, key, messages):
    """Of the same variance together."""
    return messages * jnp.sqrt(jnp.array([2.9, 0.05, 0.05]))[:, None, None]


@pytest.mark.parametrize(
    ("part", "method", "replacement", "words"),
    [
        ("trust", "noise", same_for_all_entries, "."),
        ("trust", "noise", same_for_two_entries, "two entries are correlated"),
        ("trust", "noise", same_for_all_draws, "."),
        ("mechanism", "step", same_for_all_releases, "."),
        ("trust", "third_party", same_for_all_silos, "."),
        ("trust", "third_party", mostly_one_silo, "by silos"),
    ],
)
def test_reuse_is_seen(part, method, replacement, words):
    options = {"messages": True} if method == "third_party" else {}
    methods = {method: replacement}
    if part == "mechanism":
        methods["init"] = lambda self, dim: Aggregated.init(self, dim)._replace(trust=jnp.zeros(5))
    assert re.search(words, behaviour.fault(broken(part=part, methods=methods, release="own", **options)))


def sums_of(kind, messages=False, law="discrete_laplace"):
    mechanism = MECHANISMS[law, kind](epsilon=1.0, scale=10.0, failure=1e-6, horizon=1000)
    return mechanism.sums([4, 0, 16], messages=messages)


@pytest.mark.parametrize("messages", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("law", "kind"), MECHANISMS)
def test_shipped_sums_are_as_they_say(law, kind, messages):
    assert behaviour.fault(sums_of(kind, messages, law)) == ""


def test_sums_with_noise_of_the_server_are_as_they_say():
    algo = fb.algos.SuccessiveElimination(epsilon=1.0, mechanism="laplace", trust="central")
    assert behaviour.fault(algo.bind(fb.envs.arms(n_arms=3, instance="easy").spec, 10**4).protocol) == ""


def shorter(self, key, k, n, shape):
    return PolyaNoise.total(PolyaNoise(scale=0.9 * jnp.asarray(self.scale)), key, k, n, shape)


def no_total(self, key, k, n, shape):
    return wide.from_int32(jnp.zeros(shape, jnp.int32))


def same_for_all_arms(self, key, k, n, shape):
    one = PolyaNoise.total(self, key, k, n, ())
    return wide.from_int32(jnp.broadcast_to(one.low.astype(jnp.int32), shape))


def shorter_shares(self, key, k, n, shape):
    return PolyaNoise.share(PolyaNoise(scale=0.9 * jnp.asarray(self.scale)), key, k, n, shape)


@pytest.mark.parametrize(
    ("messages", "methods"),
    [
        (False, {"total": shorter}),
        (False, {"total": no_total}),
        (False, {"total": same_for_all_arms}),
        (True, {"share": shorter_shares}),
        (True, {"share": lambda self, key, k, n, shape: jnp.zeros(shape, jnp.int32)}),
    ],
)
def test_broken_sums_are_seen(messages, methods):
    sums = sums_of("secagg", messages)
    noise = of(subclass(PolyaNoise, **methods), sums.noise)
    assert "variance that is stated" in behaviour.fault(dataclasses.replace(sums, noise=noise))
