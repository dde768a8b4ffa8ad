"""A matrix of damages by mechanisms: noise that vanishes, is drawn twice, or is 20 % off, is seen; honest noise is not.

Honest noise is drawn by the shipped code, once, and damaged on its way to the check. `test_calibration.py` computes its
standard deviation by hand from the budget.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from four_arms import RINGS, VARIANTS
from helpers import fits, prefixes
from honest import PAIRS, SPEC, of

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy import RELEASES, TRUST, behaviour
from fedbandit_jax.privacy.admission import BoundStatistic
from fedbandit_jax.privacy.byzantine import with_robust_server
from fedbandit_jax.privacy.integers.noise import Asked
from fedbandit_jax.privacy.integers.ring import RingSum

A, P = fb.algos, fb.privacy
BUDGET = P.Budget(1.0, 0.1)
M, S = 3, 5  # silos, synchronisations


def copied(axis):
    """Number 1 along an axis is number 0."""

    def damage(z):
        z = np.moveaxis(np.array(z), axis, 0)
        z[1] = z[0]
        return np.moveaxis(z, 0, axis)

    return damage


DAMAGES = {  # of fresh noise (runs, releases, D), of messages (runs, releases, silos, D), or of sums (runs, arms)
    "vanishes": lambda z: 0 * z,
    "x 0.8": lambda z: 0.8 * z,
    "x 1.2": lambda z: 1.2 * z,
    "of all runs": lambda z: np.broadcast_to(z[:1], z.shape),
    "a tenth of all runs": lambda z: 0.99**0.5 * z + 0.1 * z[:1],
    "of two releases": copied(1),
    "of two entries": copied(-1),
    "of two silos": copied(2),
    "mostly of one silo": lambda z: z * np.sqrt([2.9, 0.05, 0.05])[:, None],
    "of two arms": copied(1),
}
SCALES = ("vanishes", "x 0.8", "x 1.2")
AT_ONCE = (*SCALES, "of all runs", "a tenth of all runs", "of two releases", "of two entries")
OF_ARMS = (*SCALES, "of all runs", "of two arms")
# The sum of messages is checked, too, and shows if two entries are one draw.
OF_SILOS = (*AT_ONCE[:-1], "of two silos", "mostly of one silo")

OTHERS = {
    "decaying": P.Decaying(1.5),
    "discounted": P.Discounted(0.8),
    "band": P.BandMF(2, P.Users(2, per_batch=1, apart=2)),
    "user-defined": prefixes,
}


def bind(trust="silo_local", release="tree", budget=BUDGET, m=M, dim=2, n_syncs=S, messages=False, **options):
    recipe = P.Mechanism(budget, OTHERS.get(release, release), trust, **options)
    bound = recipe.bind(BoundStatistic(dim, constant=True), n_agents=m, n_syncs=n_syncs, batch=2)
    return fb.audits.by_message(bound) if messages else bound


# Of every trust model but that of bits, which `test_trust.py` counts, and of messages that are whole or in parts.
DEFAULT_MESSAGES = [
    *(("silo_local", release) for release in ("tree", "user-defined")),
    *((model, "tree") for model in ("silo_local_matrix", "shuffle_amplified", "central", "secagg")),
    ("local", "input_perturbation"),
]


def pairs():
    """Every release with every trust model whose proof covers it, and an id."""
    for model, release in [*itertools.product(TRUST, [*RELEASES, *OTHERS]), (PAIRS, "tree")]:
        if fits(model, OTHERS.get(release, release)):
            yield model, release, f"{model if isinstance(model, str) else 'pairs'}-{release}"


SLOW = "discounted", "band", "decaying"  # as square roots with fewer coefficients, and as user-defined matrices


def mechanisms():
    """Noise that is drawn at once: by default of all releases under one trust model, of all models with one release.

    Counts of bits are in test_trust.py.
    """
    for model, release, name in pairs():
        default = release not in SLOW if model in ("silo_local", "local") else release == "tree"
        marks = [pytest.mark.slow] * (not default or model == "shuffle_vector_sum")
        yield pytest.param(functools.partial(bind, model, release), AT_ONCE, id=name, marks=marks)
    many = functools.partial(bind, "shuffle_vector_sum", budget=P.Budget(0.02, 0.01), m=100)
    yield pytest.param(many, SCALES, id="shuffle_vector_sum-many")  # so many bits that their normal limit is drawn
    half = functools.partial(bind, statistic=P.Linear(centred=True, gram_scale=0.5))
    yield pytest.param(half, SCALES, id="silo_local-halved")
    apart = functools.partial(with_robust_server, aggregate="median", liars=P.Liars([0], "large"))
    yield pytest.param(lambda: apart(half()), OF_SILOS, id="silo_local-apart")


def messages():
    """Noise on every message of every silo."""
    for model, release, name in pairs():
        if model is PAIRS or (release not in RELEASES and (model, release) not in DEFAULT_MESSAGES):
            continue  # pairs have no messages
        case, seen = functools.partial(bind, model, release, messages=True), AT_ONCE
        if model == "shuffle_vector_sum":  # every bit of every user is drawn
            case, seen = functools.partial(case, P.Budget(20.0, 0.1), dim=1, n_syncs=2), ("x 0.8",)
        elif model not in ("central", "secagg"):
            seen = OF_SILOS
        marks = [pytest.mark.slow] * ((model, release) not in DEFAULT_MESSAGES)
        yield pytest.param(case, seen, id=f"messages-{name}", marks=marks)
    uneven = tuple(P.Budget(epsilon, 0.1) for epsilon in (0.5, 1.0, 4.0))
    yield pytest.param(lambda: bind(budget=uneven, messages=True), SCALES, id="silo_local-uneven")


def sums():
    """All noise for rewards of arms, drawn at once, or by every user; by default what test_protocol.py has not."""
    asked = Asked(epsilon=1.0, scale=10.0, failure=1e-6, horizon=1000)
    for name, shares in itertools.product(RINGS, (False, True)):
        if shares and name == "Shuffle-DP-SE":  # as with secure aggregation
            continue
        made = dataclasses.replace(RingSum.of(VARIANTS[name].law, asked, [2, 0, 4]), messages=shares)
        marks = [pytest.mark.slow] * (name != ("LDP-SE" if shares else "Dist-DP-SE"))
        yield pytest.param(lambda made=made: made, OF_ARMS, id=f"{name}{'-shares' * shares}", marks=marks)
    central = A.DPSE(1.0)
    yield pytest.param(lambda: central.bind(fb.envs.arms(3).spec, 10**4).protocol, OF_ARMS, id="laplace-central")


@pytest.fixture
def check(monkeypatch):
    """The check, with draws that a damage changes. Draws of one mechanism are made once, enough for 20 %."""
    known, now = {}, {}
    draw, add, factor = behaviour._drawn, behaviour._sums, behaviour._factor

    def once(make, *given):
        words = [np.asarray(jax.random.key_data(one)).tobytes() for one in given if isinstance(one, jax.Array)]
        return known[key] if (key := (make, *words)) in known else known.setdefault(key, make(*given))

    def drawn(mechanism, n, by_silo, *given):
        released, shown = jax.tree.map(lambda x: np.asarray(x, float), once(draw, mechanism, n, by_silo, *given))
        if by_silo and not mechanism.per_silo:
            return released, now["damage"](shown)
        noise, root = shown if by_silo else released, once(factor, mechanism.release, n)
        fresh = now["damage"](np.einsum("kj,rj...->rk...", np.linalg.inv(root), noise))
        noise = np.einsum("kj,rj...->rk...", root, fresh)
        return (released, noise) if by_silo else (noise, shown)

    def fault(mechanism, damage):
        now["damage"] = damage
        behaviour._fault.cache_clear()
        return behaviour.fault(mechanism)

    monkeypatch.setattr(behaviour, "DRAWS", 2**9)
    monkeypatch.setattr(behaviour, "_drawn", drawn)
    monkeypatch.setattr(behaviour, "_sums", lambda *given: now["damage"](np.asarray(once(add, *given), float)))
    monkeypatch.setattr(behaviour, "_factor", lambda *given: once(factor, *given))
    yield fault
    behaviour._fault.cache_clear()


@pytest.mark.parametrize(("make", "damages"), [*mechanisms(), *messages(), *sums()])
def test_damage_is_seen(make, damages, check):
    bound = make()
    assert check(bound, lambda z: z) == ""
    assert [name for name in damages if not check(bound, DAMAGES[name])] == []


def test_a_tenth_is_seen_with_all_draws():
    """And a mechanism may hold numbers of any type."""
    bound = bind()
    for by, seen in ((0.9, True), (1.0, False), (1.1, True)):
        trust = of(scaled(type(bound.trust)), bound.trust, by=np.float32(by))
        assert bool(behaviour.fault(dataclasses.replace(bound, trust=trust))) == seen
    for extra in (jnp.ones(3, jnp.bfloat16), jnp.zeros((0, 2))):
        trust = of(scaled(type(bound.trust)), bound.trust, extra=extra)
        assert behaviour.fault(dataclasses.replace(bound, trust=trust)) == ""


@functools.cache
def scaled(parent):
    """A trust model of other noise, and with a number more."""
    fields = {"__annotations__": {"by": Any, "extra": Any}, "by": np.float32(1), "extra": np.float32(0)}
    noise = {"noise": lambda self, key, size: self.by * parent.noise(self, key, size)}
    return fb.pytree(type("Scaled", (parent,), fields | noise))


def test_a_patched_class_is_seen(monkeypatch):
    """The package can be patched, and then no type tells; user-defined parts are measured when they are certified."""

    def certificate(m):
        privacy = P.Mechanism(BUDGET, release=prefixes)
        spec = dataclasses.replace(SPEC, n_agents=m)
        return certify(A.Federated(policy=A.Thompson(), schedule=2, privacy=privacy).bind(spec, 10))

    assert certificate(4).claim == "certified"
    monkeypatch.setattr(TRUST["silo_local"], "noise", lambda self, key, size: jnp.zeros(size))
    found = certificate(7)  # of a size that nothing else has, so that no program is kept from before
    assert (found.claim, "0 times the standard deviation" in found.reason) == ("none", True)
