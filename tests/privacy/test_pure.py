"""User-defined parts that do more than compute their results are refused, by the method and the line that does it.

What ordinary JAX code writes passes.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import Bias, refused
from jax import lax
from jax.custom_batching import custom_vmap, sequential_vmap

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.leaks import check_policy, policy_leaks
from fedbandit_jax.core import struct
from fedbandit_jax.core.programs import side_effect
from fedbandit_jax.privacy.admission import BoundStatistic

ENV = fb.envs.sphere(n_agents=3, n_arms=4, dim=2, rewards="bernoulli")
BUDGET = fb.privacy.Budget(1.0, 0.1)
MEMORY = {}


def own(**methods):
    return fb.pytree(type("Own", (Bias,), methods))()


def federated(policy):
    return fb.algos.Federated(policy=policy, schedule=2, privacy=BUDGET)


def run(policy):
    return fb.simulate(ENV, federated(policy), horizon=6, key=jax.random.key(0), seeds=2)


def asked(x):
    """What the host makes of an array."""
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, jnp.float32), x)


@custom_vmap
def mixed(contexts):
    return contexts.sum(-1)


@mixed.def_vmap
def _(size, batched, contexts):
    return jnp.broadcast_to(contexts.sum((0, -1)), contexts.shape[:2]), True


class Written(str):
    def format(self, *values, **named):
        MEMORY.update({"contexts": values})
        return ""


def updates(change):
    return {"update": lambda self, k, belief, released: change(belief, released.bias)}


def scores(of_contexts):
    return {"index": lambda self, key, t, belief, contexts: of_contexts(contexts, belief, t)}


def told(contexts, belief, t):
    jax.lax.cond(t > 2, lambda: jax.debug.callback(MEMORY.update, {"contexts": contexts}), lambda: None)
    return contexts @ belief


def printed(contexts, belief, t):
    jax.debug.print(Written("{}"), contexts)
    return contexts @ belief


def through_io(contexts, belief, t):
    return jax.experimental.io_callback(np.asarray, jax.ShapeDtypeStruct((4,), jnp.float32), contexts @ belief)


REFUSED = [  # methods, and what is found where
    (updates(lambda belief, bias: bias if belief is None else asked(bias)), "Own.update", "pure_callback"),
    (updates(lambda _, bias: lax.cond(bias[0] > 0, jax.jit(asked), jnp.sin, bias)), "Own.update", "pure_callback"),
    ({"start": lambda self, dim: asked(jnp.ones(2))}, "Own.start", "pure_callback"),
    (scores(through_io), "Own.index", "io_callback"),
    (scores(told), "Own.index", "debug_callback"),
    (scores(printed), "Own.index", "debug_print"),
    (scores(lambda contexts, belief, t: jax.jit(mixed)(contexts)), "Own.index", "custom_vmap_call"),
]


@pytest.mark.parametrize(("methods", "where", "what"), REFUSED)
def test_what_calls_the_host_does_not_run(methods, where, what):
    """The line is named. Nor does it prove anything where it was put in after binding."""
    with refused(where) as found:
        check_policy(own(**methods), ENV.spec)
    assert re.match(f"{what} in .*test_pure.py, line", found.value.value)
    with refused(where):
        federated(own(**methods)).bind(ENV.spec, 6)
    bound = federated(own()).bind(ENV.spec, 6)
    assert fb.interfaces.certify(bound.replace(policy=own(**methods))).claim == "none"


def test_errors_of_jax_say_in_which_method_they_were():
    """And what it was given."""

    def branches(self, key, t, belief, contexts):
        return contexts @ belief if t > 3 else contexts[:, 0]

    with pytest.raises(jax.errors.JAXTypeError) as error:
        run(own(index=branches))
    assert error.value.__notes__[-1].startswith("Own.index must be traceable by JAX")
    with pytest.raises(TypeError) as error:
        run(own(update=lambda self, k, belief, released: released.bias[:1], start=lambda self, dim: jnp.zeros(1)))
    assert error.value.__notes__[-1].startswith("This happened in Own.index, which was given arguments of shapes")


def test_values_of_traces_around_are_refused():
    def certificate(x):
        policy = own(index=lambda self, key, t, belief, contexts: contexts @ belief + x)
        return federated(policy).certificate(ENV.spec, 6).claim == "certified"

    with pytest.raises(TypeError, match=r"Own.index .* an enclosing trace"):
        jax.jit(certificate)(1.0)


def test_arrays_that_change_are_refused():
    memory = jax.new_ref(jnp.zeros((4, 2)))

    def remembers(self, key, t, belief, contexts):
        memory[...] = contexts
        return contexts @ belief

    with pytest.raises(TypeError, match="Own.index must be a pure function"):
        run(own(index=remembers))


# What ordinary JAX code computes is post-processing, and passes.

X = jnp.array([[0.5, 0.1], [0.2, 0.3], [-0.4, 0.2], [0.1, -0.6]])
V = X.T @ X + jnp.eye(2)
KEY = jax.random.key(0)
DRAWS = "categorical", "choice", "dirichlet", "gamma", "multivariate_normal", "normal", "permutation", "poisson", "t"
GIVEN = (X[0],), (4,), (X[0],), (2.0,), (X[0], V), ((4,),), (4,), (2.0,), (3.0,)
scaled = jax.custom_vjp(lambda x: 2 * x)
scaled.defvjp(lambda x: (2 * x, None), lambda _, g: (g,))
PASS = {  # functions of x (4, 2): every kind of program within a program, and of libraries
    "associative_scan": lambda x: lax.associative_scan(jnp.add, x),
    "checkpoint": jax.checkpoint(jnp.sin),
    "cond": lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
    "custom_jvp": jax.grad(lambda x: jax.nn.relu(x).sum()),
    "custom_vjp": jax.grad(lambda x: scaled(x).sum()),
    "draws": lambda x: [getattr(jax.random, name)(KEY, *given) for name, given in zip(DRAWS, GIVEN)],
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, y: y + i, x),
    "linalg": lambda x: [
        getattr(jnp.linalg, name)(V) for name in ("cholesky", "det", "eig", "eigh", "inv", "qr", "svd")
    ],
    "named_call": jax.named_call(jnp.sin),
    "print": lambda x: jax.debug.print("{}", x),
    "one by one": sequential_vmap(lambda x: 2 * x),
    "scan": lambda x: lax.scan(lambda y, z: (y + z, z), x[0], x),
    "switch": lambda x: lax.switch(x.argmax(), [jnp.sin, jnp.cos], x),
    "while_loop": lambda x: lax.while_loop(lambda y: y.sum() < 9, lambda y: y + 1, x),
}


def test_ordinary_functions_pass():
    assert [said for function in PASS.values() if (said := side_effect(function, X))] == []


@fb.pytree
class Nested:
    theta: object
    seen: object


def ridge(released):
    return jnp.linalg.solve(released.gram + jnp.eye(2), released.bias)


def adam(self, k, belief, released):
    theta, state = belief
    updates, state = optax.adam(0.1).update(released.gram @ theta - released.bias, state, theta)
    return optax.apply_updates(theta, updates), state


def test_beliefs_of_any_structure_pass():
    def first(self, key, t, belief, contexts):
        return jax.tree.leaves(belief)[-1].ravel()[0] * contexts[:, 0]

    start = {"start": lambda self, dim: (jnp.zeros(dim), optax.adam(0.1).init(jnp.zeros(dim)))}
    for methods in (
        {"update": lambda self, k, belief, released: {"theta": ridge(released)}},
        {"update": lambda self, k, belief, released: Nested(theta=ridge(released), seen=k)},
        {"update": adam, **start},
    ):
        policy = own(index=first, **methods)
        check_policy(policy, ENV.spec)
        assert policy_leaks(policy, ENV.spec, False, 5) == ()


def test_the_seal_is_the_package_s():
    with refused("sealed"):
        struct.sealed(Bias)


def test_short_floats_do_not_swallow_users():
    """In bfloat16 the 257th user of a sum would count nothing, and later ones would count double or more."""
    statistic = federated(fb.algos.Greedy()).bind(ENV.spec, 50).mechanism.statistic
    x, y, *_ = jax.jit(lambda: statistic.admit(jnp.full((2, 3), 0.7, jnp.bfloat16), jnp.ones(3, jnp.bfloat16)))()
    assert x.dtype == y.dtype == jnp.float32
    assert np.linalg.norm(x, axis=0).max() <= 1 + 1e-6


def common(n):
    c = np.tril(np.ones((n, n)))
    c[:, 0] = 2.0**-26 * (np.arange(n) == 0)
    return c


# messages in units that float32 flushes; a first one whose noise is in all prefixes and drowns the others'
LOST = {"tiny": lambda n: 8.6e37 * np.eye(n), "common": common}


@pytest.mark.parametrize("name", LOST)
def test_releases_whose_noise_float32_loses(name):
    with pytest.raises(ValueError, match="float32"):
        fb.privacy.Mechanism(BUDGET, release=LOST[name]).bind(BoundStatistic(2), n_agents=3, n_syncs=10, batch=2)


def test_user_defined_scorers_are_not_asked():
    """They would not run as the pure functions that `index` is."""

    @fb.pytree
    class Scoring(Bias):
        scores_alone = True

        def scorer(self, t, prepared):
            raise AssertionError("asked")

    for schedule in (10, fb.schedules.Geometric(2.0, first=10)):
        algo = fb.algos.Federated(policy=Scoring(), schedule=schedule, privacy=BUDGET)
        assert not algo.bind(ENV.spec, 20).scores_alone
