"""Forged guarantees: whoever changes, after binding, anything that privacy rests on loses the claim, or pays for it.

Forgeries are generated. Of every bound example each number and each static field takes other values, each part is that
of a neighbour, and each class is replaced by subclasses that override one method. What keeps a claim is run, and must
be as private as it says. Those that once succeeded, or that two changes make together, are kept by name.
"""

import copy
import dataclasses
import functools
import itertools
import math
import operator
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from honest import HONEST, BoundOffice, changed, honest, nosy, quiet
from measured import measured

import fedbandit_jax as fb
from fedbandit_jax.core import struct
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.bound import NoRelease
from fedbandit_jax.schedules import BoundLogDet

REFUSED = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, AssertionError, RuntimeError,
           np.linalg.LinAlgError)  # fmt: skip
# what is only told of the noise, or acts on what is released
UNREAD = ("policy", "stds", "bias_scale", "grouping", "width", "alpha_2", "vector", "exchange.regularization",
          "exchange.rho", "exchange.upload", "exchange.download", "exchange.max_uploads", "users", "radius", "hears",
          "hops", "delay", "n_batches", "round_robin", "spec", "regularization", "mechanism.longest",
          "protocol.noise.bits")  # fmt: skip
# by default every trust model, release and loop once
SLOW = ("own policy", "secagg", "missing", "banded", "statistic", "own schedule", "grouped", "Shuffle-DP-SE", "KL-UCB",
        "halving", "samples of sums")  # fmt: skip
SOME = deep(HONEST, keep=[i for i, name in enumerate(HONEST) if name not in SLOW])
ASKED = "epsilon", "delta", "held", "resends"  # what the certificate reads, and a run does not
SLACK = 0.9  # share of a distance that must be paid for; 256 runs tell it within 5 %, at two standard errors


@functools.cache
def reference(name):
    """The certificate of an example, the mu or the epsilon that it states, and the distance that is measured."""
    found = certify(honest(name))
    stated = fb.privacy.gaussian_mu(found.epsilon_exact, found.delta) if found.delta else found.epsilon_exact
    return found, stated, measured(honest(name), found)


@pytest.mark.parametrize("name", SOME)
def test_the_honest_are_certified(name):
    """For all of the budget; and where all noise is seen, one user is as far from another as is stated."""
    found, stated, distance = reference(name)
    assert found.claim == "certified"
    if found.notion != "zCDP":
        assert 0.9 * found.epsilon < found.epsilon_exact <= found.epsilon * (1 + 1e-6)
    assert distance <= 1.08 * stated
    if name in ("secagg", "secagg geometric", "central", "messages", "async", "fclub", "samples"):
        assert distance > 0.92 * stated
    if name == "amplified":
        assert "Lemma F.2" in found.accountant


def wrong(name, forged, path=""):
    """What is wrong with the claim of a changed example, or "": it has none, does not run, or has the noise for it."""
    first, stated, distance = reference(name)
    found = certify(forged)
    if found.claim == "none":
        return "" if found.reason else "has no claim and no reason"
    try:
        seen = distance if path.endswith(ASKED) else measured(forged, found)
    except REFUSED:
        return ""
    # where not all noise is seen, its share is that of the honest example; what is amplified is not proportional
    forms = (type(getattr(one, "mechanism", None)) for one in (forged, honest(name)))
    alike = (found.trust, found.noise_whose, next(forms)) == (first.trust, first.noise_whose, next(forms))
    relative = seen * stated / distance * alike
    states = found.epsilon_exact or 0.0  # None: nothing is released
    if not found.delta:
        least = 0.9 * SLACK * relative
    else:
        most = max(seen, relative * (name != "amplified" or relative > SLACK * stated))
        least = fb.privacy.gaussian_epsilon(min(SLACK * most, 1e3), found.delta)
    return "" if states >= least else f"states {states:.4g}, and spends {least:.4g}"


def told(found):
    return {what: why for what, why in found.items() if why}


# ---------------------------------------------------------------------------------------------------------------------
# Numbers, static fields and parts.


def other_numbers(old, neighbours):
    """Other values of a leaf, by what was done."""
    old = np.asarray(old)

    def times(by):
        with np.errstate(all="ignore"):
            return (old.astype(float) * by).astype(old.dtype)

    yield from {f"times {by:g}": times(by) for by in (0.1, 10, -1, 0)}.items()
    yield "what int32 cuts", np.full(old.shape, 2**32, np.int64)
    if old.dtype.kind == "f":
        yield "not a number", np.full_like(old, np.nan)
        yield "what float32 flushes", np.full(old.shape, 1e-42)
    if old.ndim:
        for what, at, by in (("first times 0.1", 0, 0.1), ("last 0", -1, 0)):
            new = old.copy()
            new.flat[at] = times(by).flat[at]
            yield what, new
        if old.size < 20:
            yield "one fewer", old[:-1]
    for name, other in neighbours.items():
        if np.shape(other) == old.shape:
            yield f"that of {name}", np.asarray(other).astype(old.dtype)


def leaves(bound):
    return {jax.tree_util.keystr(path)[1:]: leaf for path, leaf in jax.tree_util.tree_leaves_with_path(bound)}


def unread(name, path):
    """Whether a field is of no use to noise, or, in examples with own parts, is as in "tree"."""
    alike = name.startswith("own") and not path.startswith(("mechanism.trust", "mechanism.release"))
    return alike or path.startswith(UNREAD)


def with_other_numbers(name):
    values, structure = jax.tree.flatten(honest(name))
    for i, (path, old) in enumerate(leaves(honest(name)).items()):
        near = {one: leaves(honest(one)).get(path, ()) for one in HONEST if one != name}
        known = [np.asarray(old)]
        for what, new in [] if unread(name, path) else other_numbers(old, near):
            if not any(new.dtype == one.dtype and np.array_equal(new, one) for one in known):
                known.append(new)
                yield path, what, jax.tree.unflatten(structure, [*values[:i], new, *values[i + 1 :]])


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Casting complex:numpy.exceptions.ComplexWarning")  # certificates of what is forged
@pytest.mark.parametrize("name", SOME)
def test_numbers(name):
    assert told({f"{path}: {what}": wrong(name, forged, path) for path, what, forged in with_other_numbers(name)}) == {}


def parts(value, path=""):
    """The dataclasses within one, itself included, by path."""
    yield path, value
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            yield from parts(part, f"{path}.{field.name}".lstrip("."))


def put(value, path, new):
    """A copy in which the field at a path is `new`, which nothing checks."""
    if not path:
        return new
    first, _, rest = path.partition(".")
    clone = copy.copy(value)
    object.__setattr__(clone, first, put(getattr(value, first), rest, new))
    return clone


# Words, and room.
SAYS = "sentence", "whose", "of", "of_user", "parts", "n_buffers", "gram_scale", "width", "patient", "shifts"
WORDS = {"adjacency": ("replace", "zero_out")}


def other_values(field, old):
    """Other values of a static field."""
    if isinstance(old, bool):
        yield not old
    elif isinstance(old, (int, float)):
        yield from {0 * old, old + 1, 10 * old} - {old}
        yield from [math.nan] * isinstance(old, float)
    elif isinstance(old, str):
        yield from {"", *WORDS.get(field, ())} - {old}
    elif old is None:
        yield from (1, True)
    elif isinstance(old, tuple) and hasattr(old, "_fields"):
        for one in old._fields:
            yield from (old._replace(**{one: new}) for new in other_values(one, getattr(old, one)))


def with_other_fields(name):
    numbers = leaves(honest(name))
    for path, part in parts(honest(name)):
        for field in dataclasses.fields(part):
            at, old = f"{path}.{field.name}".lstrip("."), getattr(part, field.name)
            if at not in numbers and not unread(name, at) and field.name not in SAYS:
                for new in other_values(field.name, old):
                    yield at, new, put(honest(name), at, new)


def test_static_fields():
    """Fields that may be another and keep the claim are run, each in the first example that has it."""
    found = {}
    for name in (name for name in HONEST if name not in SLOW):
        for path, new, forged in with_other_fields(name):
            if path not in found and claimed(forged):
                why = wrong(name, forged, path)
                found[path] = why and f"{name}: {new} {why}"
    assert told(found) == {}


def claimed(forged):
    return certify(forged).claim != "none"


def claimed_of(forge):
    try:
        return claimed(forge())
    except REFUSED:
        return False


SWAPPED = "mechanism", "mechanism.trust", "mechanism.release", "mechanism.statistic", "mechanism.users", "schedule"


@pytest.mark.parametrize("name", deep(["tree", "secagg geometric", "amplified", "matrix", "regulars"], keep={0}))
def test_parts_of_neighbours(name):
    """What keeps the claim with a part of another class is run."""
    found, known = {}, {type(part) for _, part in parts(honest(name))}
    for path in SWAPPED:
        for other in HONEST:
            theirs = dict(parts(honest(other))).get(path)
            if theirs is not None and path in dict(parts(honest(name))):
                forged = put(honest(name), path, theirs)
                if claimed(forged) and type(theirs) not in known:
                    known.add(type(theirs))
                    found[f"{path} of {other}"] = wrong(name, forged)
    assert told(found) == {}


# ---------------------------------------------------------------------------------------------------------------------
# Classes.


def methods(kind):
    """Public methods and properties of a class of the package."""
    for name in dir(kind):
        given = next(vars(one)[name] for one in kind.__mro__ if name in vars(one))
        if not name.startswith("_") and (isinstance(given, property) or callable(given)):
            yield name, given


def overriding(value, name, given, honestly):
    """An object of a subclass with the same fields, whose method says the same as before, or 0."""
    kind = type(value)

    def call(self, *arguments, **named):
        said = getattr(super(new, self), name)(*arguments, **named)
        return said if honestly else jax.tree.map(lambda x: 0 * x, said)

    def read(self):
        said = getattr(super(new, self), name)
        return said if honestly else jax.tree.map(lambda x: 0 * x, said)

    new = type(f"Own{kind.__name__}", (kind,), {name: property(read) if isinstance(given, property) else call})
    if jax.tree.structure(value) != jax.tree.structure(0):
        struct.node(new)
    clone = object.__new__(new)
    vars(clone).update(vars(value))
    return clone


def hiding(value, name):
    """A copy with an attribute that hides a method."""
    clone = copy.copy(value)
    object.__setattr__(clone, name, lambda *given, **named: 0)
    return clone


PARTS = {type(part).__name__: (name, path) for name in HONEST for path, part in parts(honest(name))}
OPEN = {"Thompson", "BoundOffice", "BoundEvery", "BoundFixed", "Logistic", "Spec"}  # may be user-defined


@pytest.mark.parametrize("kind", [kind for kind in PARTS if kind not in OPEN])
def test_one_method_overridden(kind):
    """No claim is left, be the method honest or not, of a subclass or an attribute."""
    name, path = PARTS[kind]
    part, found = dict(parts(honest(name)))[path], {}
    for method, given in methods(type(part)):
        changes = {f"{method}, {honestly=}": overriding(part, method, given, honestly) for honestly in (True, False)}
        if not isinstance(given, property) and method not in vars(part):
            changes[f"{method}, hidden"] = hiding(part, method)
        found |= {what: "is certified" * claimed(put(honest(name), path, new)) for what, new in changes.items()}
    assert told(found) == {}


class Twice(np.ndarray):
    """A number that is one to NumPy, and another one to JAX."""

    def __jax_array__(self):
        return jnp.asarray(1e-3 * np.asarray(self))


def of_subclass(value):
    """The same value, of a subclass of its class that could answer anything."""
    kind = type("Own", (type(value),), {})
    if not dataclasses.is_dataclass(value):
        return kind(value)
    clone = object.__new__(kind)
    vars(clone).update(vars(value))
    return clone


@pytest.mark.parametrize("name", SOME)
def test_numbers_and_words_that_could_answer_twice(name):
    """In place of every number, text and tuple of every sealed part: no claim is left, whatever they say."""
    bound, forged = honest(name), {}
    for path in leaves(bound):
        old = operator.attrgetter(path)(bound) if "[" not in path else None
        if old is not None and struct.is_sealed(operator.attrgetter(path.rpartition(".")[0] or "spec")(bound)):
            forged[path] = functools.partial(put, bound, path, np.asarray(old).view(Twice))
    for path, part in parts(bound):
        for field in dataclasses.fields(part) if struct.is_sealed(part) else ():
            value = getattr(part, field.name)
            if type(value) in (str, int, float, tuple) or struct.is_sealed(value):
                at = f"{path}.{field.name}".lstrip(".")
                forged[f"{at}, a subclass"] = functools.partial(
                    lambda at, value: put(bound, at, of_subclass(value)), at, value
                )
    assert len(forged) > 10
    assert [what for what, forge in forged.items() if claimed_of(forge)] == []


# ---------------------------------------------------------------------------------------------------------------------
# By name: what once succeeded, and what changes two things together.


def at(path, change):
    """Puts another value, or the result of a function of the old one, at a path."""
    return lambda bound: put(bound, path, change(operator.attrgetter(path)(bound)) if callable(change) else change)


def rounded_away(release):
    n = release.n_syncs
    r = 1e-5 * np.tril(np.ones((n, n)), -1) + 1e-37 * np.eye(n)
    return dataclasses.replace(release, r=r.astype(np.float32))


def small_messages(bound):
    """A coefficient that no message reads makes them small."""
    coefficients = np.append(np.float32(0.6), bound.mechanism.release.coefficients[1:])
    bound = put(bound, "mechanism.release.coefficients", coefficients)
    return put(bound, "mechanism.trust", quiet(bound.mechanism.trust, 1.1))


def known_by_its_noise(std):
    return np.append(std[:1], 1000 * std[1:])


def finer_steps(trust):
    return dataclasses.replace(trust, share=np.float32(2**12) * trust.share, scale=np.float32(2**12) * trust.scale)


def one_silo(mechanism):
    mechanism = put(mechanism, "users.silos", 1)
    return put(mechanism, "statistic", dataclasses.replace(mechanism.statistic, silos=1))


def counts_alone(bound):
    """Gossip, in which every silo has its own table."""
    spec = dataclasses.replace(bound.spec, n_users=6, silos=4)
    users = fb.privacy.Users(4, silos="together")
    bound = put(put(bound, "spec", spec), "mechanism.users", users)
    statistic = dataclasses.replace(bound.mechanism.statistic, n_users=6, silos=4)
    return put(put(bound, "mechanism.statistic", statistic), "mechanism.enforced", True)


def missing(bound):
    """Silos that drop out hear of no visits."""
    bound = put(bound, "spec", dataclasses.replace(bound.spec, drops=True))
    bound = put(bound, "mechanism.release", fb.privacy.RELEASES["input_perturbation"](8))
    return put(bound, "mechanism.statistic", dataclasses.replace(bound.mechanism.statistic, drops=True))


def with_policy(learns_in_batch=False, metaclass=type, seals=False, **methods):
    """A policy of a subclass, which may seal itself."""
    kind = fb.pytree(metaclass("Own", (fb.algos.Thompson,), methods))
    policy = (struct.sealed(kind) if seals else kind)()
    return lambda bound: changed(bound, "", policy=policy, learns_in_batch=learns_in_batch)


def as_loop(metaclass=type, seals=False, **words):
    """A loop that claims what the honest one may."""

    def forge(bound):
        kind = metaclass("Own", (type(bound),), {"guarantee": lambda self: certify(bound), **words})
        clone = object.__new__(struct.node(struct.sealed(kind) if seals else kind))
        vars(clone).update(vars(bound))
        return clone

    return forge


class Says(type):
    """A metaclass by which a class has the methods of its parent, as it says."""

    def __getattribute__(cls, name):
        return getattr(fb.Policy, name) if name == "indices" else super().__getattribute__(name)


class Equals(type):
    """A metaclass by which a class equals all others."""

    def __eq__(cls, other):
        return True

    def __hash__(cls):
        return hash(type(honest("tree")))


def rounds(*ends):
    return at("schedule.rounds", np.array(ends, np.int32))


def scores_together(key, t, prepared, offered):
    """Scores the users of all agents at once."""
    return (offered.contexts.sum(0) @ jnp.ones(2))[:, None] + jnp.zeros(4)


def together(self, *given):
    return scores_together(*given)


# a field of the name of a method, which nothing declares at the class
HIDDEN = {"__annotations__": {"indices": object}, "indices": fb.static(default_factory=lambda: scores_together)}


def looked_up(self, name):
    return scores_together if name == "indices" else object.__getattribute__(self, name)


def first(self, belief, offered, fixed):
    return offered.contexts


def disguised(bound):
    words = {"__class__": type(bound), "guarantee": lambda self: certify(bound)}
    return fb.pytree(type("Disguised", (fb.Algorithm,), words))()


def other_bounds(**changes):
    return at("mechanism.statistic.bounds", lambda bounds: bounds._replace(**changes))


OTHER_SCALE = at("mechanism.statistic.rule", put(fb.privacy.Linear(), "gram_scale", 1e6))
POOLS = "learns inside the batch, from the raw rewards of the users of all silos"
TOGETHER = "scores the users of all agents"
UNBOUND, OWN_LOOP = "fields that no recipe binds", "is a user-defined algorithm"
HIDES, OURS = "whose methods are not those of its class", {"__module__": "fedbandit_jax.algos"}
SAME = {"__module__": type(honest("tree")).__module__, "__qualname__": type(honest("tree")).__qualname__}
LEAKS, DECIDED = "the schedule leaks", "the noise is for sizes fixed in advance"
ADAPTIVE = honest("tested").schedule
BELOW = dataclasses.replace(fb.schedules.Every(40).bind(None), batch=np.int32(-40))
MINDS = nosy(reads=property(lambda self: "nothing"))
NAMED = {  # what is done to an example, and why nothing is claimed, or the epsilon that is left
    "budgets of the honest silos": ("silos", at("mechanism.epsilon", np.ones(2)), "2 budgets for 4 silos"),
    "few bits drawn as normal": ("vector sum", at("mechanism.trust.exact", False), "too small for the normal limit"),
    "users who return": ("tree", at("spec.n_users", 9), "another statistic"),
    "users who are not left out": ("regulars", at("mechanism.enforced", False), "no silo leaves out"),
    "users who cannot be left out": ("tree", at("mechanism.enforced", True), "cannot be left out"),
    "bounds of little": ("tree", other_bounds(weight=0.01, low=0.0, high=0.01), "bounds must be the bounds of"),
    "a rule of another scale": ("tree", OTHER_SCALE, "bounds must be the bounds of"),
    "a scale of little": ("tree", other_bounds(gram_scale=0.1), "bounds must be the bounds of"),
    "noise that is rounded away": ("own release", at("mechanism.release", rounded_away), "epsilon = inf"),
    "small messages": ("banded", small_messages, "gives epsilon = "),
    "a silo known by its noise": ("amplified", at("mechanism.trust.std", known_by_its_noise), "gives epsilon"),
    "finer steps": ("secagg", at("mechanism.trust", finer_steps), "no room for the messages of batches of 5"),
    "rounding where shuffling amplifies": ("amplified", at("mechanism.longest", 2**13), "gives epsilon"),
    "a larger batch": ("secagg geometric", rounds(5, 25, 30), "at most 9 rounds, and runs with up to 20"),
    "a larger first batch": ("secagg geometric", rounds(35), "at most 9 rounds, and runs with up to 35"),
    "a batch below zero": ("secagg geometric", at("schedule", BELOW), "at most 9 rounds, and runs with up to 40"),
    "an adaptive schedule": ("secagg geometric", at("schedule", ADAPTIVE), DECIDED),
    "a user-defined schedule": ("secagg geometric", at("schedule", BoundOffice()), DECIDED),
    "a leaky schedule": ("central", at("schedule", BoundLogDet(threshold=np.float32(1))), "Example 3.1"),
    "one noise for all silos' tests": ("tested", at("schedule.n_agents", 1), "tests 1 silos, and there are 4"),
    "asking for what is not released": ("tested", at("mechanism", NoRelease(n_agents=4)), "but this schedule asks"),
    "a schedule that reads log det": ("tested", at("schedule", nosy(reads="log_det")), LEAKS),
    "a schedule that changes its mind": ("tested", at("schedule", MINDS), LEAKS),
    "two deltas": ("tree", at("mechanism.delta", np.full(2, 0.1)), UNBOUND),
    "users of two silos": ("at four silos", at("mechanism.users.silos", 2), "visit up to 4 silos"),
    "silos that count for one": ("at four silos", at("mechanism", one_silo), "another statistic"),
    "a count of one silo": ("together", at("mechanism.users.silos", 1), "visit up to 4 silos"),
    "a common count of one silo": ("gossip", counts_alone, "do not count together"),
    "a common count of absent silos": ("together", missing, "do not count together"),
    "visits beyond full batches": ("regulars", at("mechanism.users.per_batch", 2), "must divide"),
    "scores of all users": ("tree", with_policy(indices=together), TOGETHER),
    "scores of the first users": ("central", with_policy(prepare=first), TOGETHER),
    "a policy that learns": ("tree", with_policy(learns_in_batch=True), POOLS),
    "a policy that seals itself": ("tree", with_policy(seals=True, indices=together, **OURS), TOGETHER),
    "a field that hides a method": ("tree", with_policy(**HIDDEN), HIDES),
    "attributes that are looked up otherwise": ("tree", with_policy(__getattribute__=looked_up), HIDES),
    "attributes that are made up": ("tree", with_policy(__getattr__=looked_up), HIDES),
    "attributes in another dictionary": ("tree", with_policy(__dict__={}), HIDES),
    "a class that says what it inherits": ("tree", with_policy(metaclass=Says, indices=together), HIDES),
    "a loop that equals a sealed one": ("tree", as_loop(metaclass=Equals), OWN_LOOP),
    "a sealed loop's name": ("tree", as_loop(seals=True, **SAME), OWN_LOOP),
    "an algorithm in disguise": ("tree", disguised, OWN_LOOP),
}


ODD = 0, 0.5, True, [3], np.array([3]), np.array([3, 4]), np.int64(3), math.nan, None, "3", {}, 3.0, 2**70


@pytest.mark.parametrize("name", ["regulars", "together", "own trust", "DP-SE"])
def test_bounds_of_odd_types(name):
    """Values that are no bounds, and may not be hashable, are no claim and no error."""
    where = "unit" if name == "DP-SE" else "mechanism.users"
    bound = put(honest(name), where, fb.privacy.Users(3, per_batch=1))
    bounds = {"per_batch": None, "apart": ODD[-1]}  # a run refuses the latter, which int32 does not hold
    for field in ("visits", "per_batch", "apart", "silos"):
        for odd in ODD:
            if field not in bounds or odd is not bounds[field]:
                assert certify(put(bound, f"{where}.{field}", odd)).claim == "none", (field, odd)


def test_odd_values_where_noise_is_measured():
    for field, odd in itertools.product(("held", "resends"), ([3], math.nan, None, {})):
        certify(put(honest("own trust"), f"mechanism.{field}", odd))  # raises no error


@pytest.mark.parametrize("name", NAMED)
def test_by_name(name):
    start, forge, words = NAMED[name]
    found = certify(forge(honest(start)))
    assert found.claim in ("none", "as_printed")
    assert re.search(words, found.reason)
    if found.claim == "none" and found.epsilon_exact is not None:
        assert found.epsilon_exact > found.epsilon * (1 + 1e-4)


def test_weaker_statements_are_true_and_room_costs_nothing():
    """What is printed is what is stated; and the certificate counts the levels of the releases that are made."""
    for field, value in (("epsilon", 3.0), ("delta", 0.2), ("adjacency", "zero_out")):
        found = certify(
            changed(honest("tree"), "mechanism", **{field: np.array([value]) if field == "epsilon" else value})
        )
        printed = {"epsilon": found.epsilon, "delta": found.delta, "adjacency": found.neighbours}
        assert (found.claim, printed[field]) == ("certified", value)
        assert found.epsilon_exact <= 1 + 1e-6
    assert certify(put(honest("tree"), "mechanism.release.n_levels", 9)) == certify(honest("tree"))
