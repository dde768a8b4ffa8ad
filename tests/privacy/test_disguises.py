"""Disguises: what tells the host one thing and a program another, or looks like a part of ours, proves nothing."""

import dataclasses
import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from honest import HONEST, HORIZON, SPEC, changed, federated, honest, subclass
from test_forgeries import REFUSED, SLOW, leaves, parts, put

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.server import ServerLoop
from fedbandit_jax.core import struct
from fedbandit_jax.envs._wrapper import Wrapper
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.certification import OF_A_TABLE

SOME = deep(HONEST, keep=[i for i, name in enumerate(HONEST) if name not in SLOW])


@jax.tree_util.register_pytree_node_class
class Twice:
    """A number that is one to NumPy, and another one to JAX."""

    def __init__(self, told, drawn):
        self.told, self.drawn = told, drawn

    def tree_flatten(self):
        return (self.told, self.drawn), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.told, dtype)

    def __jax_array__(self):
        return jnp.asarray(self.drawn)

    def __float__(self):
        return float(self.told)

    def __len__(self):
        return len(self.told)

    def __getattr__(self, name):
        return getattr(np.asarray(self.told), name)


def own(value):
    """The same value, of a subclass of its class that could answer anything."""
    kind = type("Own", (type(value),), {})
    if not dataclasses.is_dataclass(value):
        return kind(value)
    clone = object.__new__(kind)
    vars(clone).update(vars(value))
    return clone


def certified(forged):
    try:
        return certify(forged()).claim != "none"
    except REFUSED:
        return False


@pytest.mark.parametrize("name", SOME)
def test_numbers_and_words_that_could_answer_twice(name):
    """In place of every number, text and tuple of every sealed part: no claim is left, whatever they say."""
    bound, forged = honest(name), {}
    for path in leaves(bound):
        old = operator.attrgetter(path)(bound) if "[" not in path else None
        if old is not None and struct.is_sealed(operator.attrgetter(path.rpartition(".")[0] or "spec")(bound)):
            forged[path] = functools.partial(put, bound, path, Twice(old, 1e-3 * np.asarray(old)))
    for path, part in parts(bound):
        for field in dataclasses.fields(part) if struct.is_sealed(part) else ():
            value = getattr(part, field.name)
            if type(value) in (str, int, float, tuple) or struct.is_sealed(value):
                at = f"{path}.{field.name}".lstrip(".")
                forged[f"{at}, a subclass"] = functools.partial(lambda at, value: put(bound, at, own(value)), at, value)
    assert len(forged) > 10
    assert [what for what, forge in forged.items() if certified(forge)] == []


def together(key, t, prepared, offered):
    """Scores the users of all agents at once."""
    return (offered.contexts.sum(0) @ jnp.ones(2))[:, None] + jnp.zeros(4)


class Says(type):
    """A metaclass by which a class has the methods of its parent, as it says."""

    def __getattribute__(cls, name):
        return getattr(fb.Policy, name) if name == "indices" else super().__getattribute__(name)


class Equals(type):
    """A metaclass by which a class equals all others."""

    def __eq__(cls, other):
        return True

    def __hash__(cls):
        return hash(ServerLoop)


def with_policy(policy):
    return changed(honest("tree"), "", policy=policy)


def with_field(name):
    """A policy with a field of the name of a method, which nothing declares at the class."""
    kind = type("Own", (fb.algos.Thompson,), {"__annotations__": {name: object}, name: fb.static()})
    return with_policy(fb.pytree(kind)(**{name: together}))


def with_lookup(self, name):
    return together if name == "indices" else object.__getattribute__(self, name)


def a_loop(**words):
    """A loop that claims what an honest one may."""
    kind = words.pop("metaclass", type)(
        "Own", (ServerLoop,), {"guarantee": lambda self: certify(honest("tree")), **words}
    )
    clone = object.__new__(struct.node(kind))
    vars(clone).update(vars(honest("tree")))
    return clone


def sealed(value):
    """What says that it is of this package, and seals itself."""
    struct.sealed(type(value))
    return value


def lying(name):
    return {"__module__": f"fedbandit_jax.{name}"}


DISGUISES = {
    "a field that hides a method": lambda: with_field("indices"),
    "a field that hides what is prepared": lambda: with_field("prepare"),
    "attributes that are looked up otherwise": lambda: with_policy(
        subclass(fb.algos.Thompson, __getattribute__=with_lookup)()
    ),
    "attributes that are made up": lambda: with_policy(subclass(fb.algos.Thompson, __getattr__=with_lookup)()),
    "attributes in another dictionary": lambda: with_policy(subclass(fb.algos.Thompson, __dict__={})()),
    "a class that says what it inherits": lambda: with_policy(
        fb.pytree(Says("Own", (fb.algos.Thompson,), {"indices": lambda self, *given: together(*given)}))()
    ),
    "a loop that equals a sealed one": lambda: a_loop(metaclass=Equals),
    "a loop of the same name": lambda: a_loop(__module__=ServerLoop.__module__, __qualname__="ServerLoop"),
    "a loop that seals itself": lambda: sealed(a_loop(**lying("algos"))),
    "a policy that seals itself": lambda: with_policy(
        sealed(subclass(fb.algos.Thompson, indices=lambda self, *given: together(*given), **lying("algos"))())
    ),
    "a sealed loop's name": lambda: sealed(a_loop(__module__=ServerLoop.__module__, __qualname__="ServerLoop")),
}


@pytest.mark.parametrize("what", DISGUISES)
def test_disguised_parts(what):
    assert not certified(DISGUISES[what])


def test_parts_with_our_names_are_named():
    """A class says what module it is from, and its author what it is called."""
    words = {**lying("algos.policies.greedy"), "__qualname__": "Thompson"}
    policy = fb.pytree(type("Thompson", (fb.algos.Thompson,), words))()
    rule = {"contribution": lambda self, x, y, seen: (1.0, y), "__repr__": lambda self: "Linear()"}
    statistic = type("Linear", (fb.privacy.Statistic,), {**lying("privacy"), **rule})()
    found = certify(federated(policy=policy, statistic=statistic, trust="central").bind(SPEC, HORIZON))
    assert set(found.user_defined) == {"policy: Thompson", "rule: Linear"}
    assert not struct.shipped(policy)


# ---------------------------------------------------------------------------------------------------------------------
# Runs.

SEEN = []


@fb.pytree
class Tells(Wrapper):
    """Hands its world on, beside what it offers."""

    def observe(self, key, world, t):
        offered, world = self.env.observe(key, world, t)
        SEEN.append(world)
        return offered, world


@fb.pytree
class Hears(fb.algos.Thompson):
    """Scores by the world itself, where it is being played, and as it says where it is looked at."""

    def index(self, key, t, belief, contexts):
        try:
            return contexts @ (jax.tree.leaves(SEEN[-1])[0] + 0)
        except Exception:
            return super().index(key, t, belief, contexts)


def simulate(env, policy=fb.algos.Thompson()):  # noqa: B008 - a frozen dataclass
    algo = federated(policy=policy, schedule=5)
    return fb.simulate(env, algo, horizon=10, key=jax.random.key(0), seeds=2, progress=False)


def test_a_policy_that_is_told_of_the_world_by_its_environment():
    inner = fb.envs.sphere(4, 3, 2, rewards="bernoulli")
    SEEN.clear()
    with pytest.raises(TypeError, match=r"Hears\.index"):
        simulate(Tells(env=inner, spec=inner.spec), Hears())


ASKED = []


@fb.pytree
class Mind(Wrapper):
    """Accepts or rejects, and says that it has rows when its spec is asked for the so-many-th time, and never again."""

    when: int = fb.static()

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        if name != "spec":
            return found
        ASKED.append("spec")
        return dataclasses.replace(found, rejects=ASKED.count("spec") == self.when)

    def accepts(self, key, world, arms):
        ASKED.append("accepts")
        return arms >= 0, world


@pytest.mark.parametrize("when", range(1, 16))
def test_an_environment_that_changes_its_mind(when):
    """Data decide about no round unless the certificate says so."""
    inner = fb.envs.sphere(4, 3, 2, rewards="bernoulli")
    ASKED.clear()
    try:
        found = simulate(Mind(env=inner, spec=inner.spec, when=when)).certificate
    except (TypeError, ValueError):
        return
    assert "accepts" not in ASKED or OF_A_TABLE in found.not_covered
