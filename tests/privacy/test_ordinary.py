"""Parts of one's own as people write them: what ordinary JAX code computes is post-processing, and passes."""

import dataclasses
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
import optax
import pytest
from helpers import Bias
from honest import subclass
from jax import lax
from jax.scipy import linalg, stats

import fedbandit_jax as fb
from fedbandit_jax.algos.loops.doors import check_policy, policy_doors
from fedbandit_jax.algos.loops.streams import leak_of
from fedbandit_jax.core.programs import leak
from fedbandit_jax.schedules import BoundSchedule, check, doors

SPEC = fb.Spec(n_agents=3, n_arms=4, dim=2, max_norm=1.0, rewards_in_unit=True)
X = jnp.array([[0.5, 0.1], [0.2, 0.3], [-0.4, 0.2], [0.1, -0.6]])
V = X.T @ X + jnp.eye(2)
KEY = jax.random.key(0)

NAMES = {  # of functions of x (4, 2), of two of these, of V (2, 2), of positive x, and of a key
    "jnp": """
        abs all any argmax argmin argsort around average ceil cos count_nonzero cov cumprod cumsum diagonal diff
        exp expm1 fft.fft flip floor gradient histogram isfinite isnan linalg.norm log1p max mean median min
        nan_to_num nanmean negative prod ptp ravel reciprocal rint rot90 round sign sin sinc sort sqrt square
        squeeze std sum tanh trace transpose trapezoid tril triu unwrap var
    """,
    "pairs": """
        add arctan2 copysign equal floor_divide fmax hypot inner isclose kron less logaddexp
        maximum minimum mod multiply outer power subtract true_divide
    """,
    "linalg": "cholesky cond det eig eigh eigvalsh inv matrix_rank norm pinv qr slogdet svd",
    "special": "digamma erf erfinv expit gammaln i0 log_ndtr logit ndtr ndtri",
    "random": """
        bernoulli beta categorical cauchy choice clone dirichlet exponential fold_in gamma gumbel key_data
        laplace logistic multivariate_normal normal orthogonal permutation poisson randint rademacher split t
        truncated_normal uniform
    """,
}
GIVEN = {
    "bernoulli": (0.3, (4,)), "beta": (1.0, 2.0), "categorical": (X[0],), "choice": (4,), "clone": (),
    "dirichlet": (X[0],), "fold_in": (3,), "gamma": (2.0,), "key_data": (), "multivariate_normal": (X[0], V),
    "orthogonal": (2,), "permutation": (4,), "poisson": (2.0,), "randint": ((4,), 0, 9), "split": (), "t": (3.0,),
    "truncated_normal": (-1.0, 1.0),
}  # fmt: skip


@jax.custom_jvp
def clipped(x):
    return jnp.clip(x, -1, 1)


clipped.defjvp(lambda primals, tangents: (clipped(*primals), tangents[0]))


@jax.custom_vjp
def scaled(x):
    return 2 * x


scaled.defvjp(lambda x: (2 * x, None), lambda _, g: (g,))

OTHERS = {
    "array_split": lambda x: jnp.array_split(x, 3)[0],
    "associative_scan": lambda x: lax.associative_scan(jnp.add, x),
    "at set": lambda x: x.at[1].set(0.0).at[0].add(1.0),
    "barrier": lax.optimization_barrier,
    "block": lambda x: jnp.block([[x, x]]),
    "bool mask": lambda x: jnp.where(x > 0, x, 0),
    "checkpoint": jax.checkpoint(jnp.sin),
    "cho_solve": lambda x: linalg.cho_solve(linalg.cho_factor(V), x.T),
    "cond": lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
    "convolve": lambda x: jnp.convolve(x[:, 0], x[:, 1]),
    "custom_jvp": lambda x: jax.grad(lambda v: clipped(v).sum())(x),
    "custom_vjp": lambda x: jax.grad(lambda v: scaled(v).sum())(x),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (1, 0), (2, 2)),
    "einsum": lambda x: jnp.einsum("ki,ij,kj->k", x, V, x),
    "expm": lambda x: linalg.expm(V),
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, y: y + i, x),
    "grad": jax.grad(lambda x: (x**2).sum()),
    "hessian": lambda x: jax.hessian(lambda v: (v**3).sum())(x[0]),
    "interp": lambda x: jnp.interp(x, jnp.arange(4.0), jnp.arange(4.0)),
    "jacfwd": lambda x: jax.jacfwd(jnp.sin)(x[0]),
    "jit": jax.jit(jnp.sin),
    "jvp": lambda x: jax.jvp(jnp.sin, (x,), (x,)),
    "linearize": lambda x: jax.linearize(jnp.sin, x)[1](x),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=1),
    "logpdf": lambda x: stats.multivariate_normal.logpdf(x, x[0], V),
    "lstsq": lambda x: jnp.linalg.lstsq(x, x[:, 0]),
    "lu": lambda x: linalg.lu(V),
    "map": lambda x: lax.map(jnp.sum, x),
    "meshgrid": lambda x: jnp.meshgrid(x[:, 0], x[:, 1]),
    "named_call": jax.named_call(jnp.sin),
    "one_hot": lambda x: jax.nn.one_hot(x.argmax(1), 2),
    "pad": lambda x: jnp.pad(x, 1),
    "piecewise": lambda x: jnp.piecewise(x, [x < 0, x >= 0], [lambda x: -x, lambda x: x]),
    "polyval": lambda x: jnp.polyval(jnp.ones(3), x),
    "print": lambda x: jax.debug.print("{}", x),
    "quantile": lambda x: jnp.quantile(x, 0.3),
    "ragged_dot": lambda x: lax.ragged_dot(x, V[None], jnp.array([4])),
    "relu": jax.nn.relu,
    "repeat": lambda x: jnp.repeat(x, 2),
    "scan": lambda x: lax.scan(lambda y, z: (y + z, z), x[0], x),
    "segment_sum": lambda x: jax.ops.segment_sum(x, jnp.array([0, 1, 0, 1]), 2),
    "select": lambda x: jnp.select([x > 0, x < 0], [x, -x]),
    "softmax": jax.nn.softmax,
    "solve": lambda x: jnp.linalg.solve(V, x.T),
    "solve_triangular": lambda x: linalg.solve_triangular(V, x.T),
    "split": lambda x: jnp.split(x, 2),
    "sqrtm": lambda x: linalg.sqrtm(V),
    "stop_gradient": lax.stop_gradient,
    "switch": lambda x: lax.switch(x.argmax(), [jnp.sin, jnp.cos], x),
    "take_along_axis": lambda x: jnp.take_along_axis(x, x.argsort(0), 0),
    "tensordot": lambda x: jnp.tensordot(x, x, 2),
    "top_k": lambda x: lax.top_k(x[:, 0], 2),
    "unique": lambda x: jnp.unique(x, size=3),
    "vectorize": jnp.vectorize(lambda x: x + 1),
    "vjp": lambda x: jax.vjp(jnp.sin, x)[1](x),
    "vmap": jax.vmap(jnp.sum),
    "while_loop": lambda x: lax.while_loop(lambda y: y.sum() < 9, lambda y: y + 1, x),
}


def functions():
    """Name -> a function of x (4, 2)."""
    modules = {"jnp": jnp, "pairs": jnp, "linalg": jnp.linalg, "special": special, "random": jax.random}

    def given(kind, name, x):
        of_key = (KEY, *GIVEN.get(name, ((4,),)))
        return {"jnp": (x,), "pairs": (x, x), "linalg": (V + x[0, 0],), "special": (jnp.abs(x),), "random": of_key}[
            kind
        ]

    def function(kind, name):
        return lambda x: operator.attrgetter(name)(modules[kind])(*given(kind, name, x))

    return {f"{kind}.{name}": function(kind, name) for kind, text in NAMES.items() for name in text.split()} | OTHERS


def test_ordinary_functions_pass():
    found = {name: leak(function, X) for name, function in functions().items()}
    assert len(found) >= 150
    assert {name: said for name, said in found.items() if said} == {}


# ---------------------------------------------------------------------------------------------------------------------
# Parts.


class Pair(NamedTuple):
    theta: object
    inverse: object


@fb.pytree
class Nested:
    theta: object
    seen: object


def ridge(released):
    return jnp.linalg.solve(released.gram + jnp.eye(2), released.bias)


def by_index(index):
    return fb.pytree(
        type("Own", (Bias,), {"index": lambda self, key, t, belief, contexts: index(key, t, belief, contexts)})
    )()


def by_update(update, start=None, index=lambda belief: belief):
    methods = {"update": lambda self, k, belief, released: update(k, belief, released)}
    methods["index"] = lambda self, key, t, belief, contexts: jnp.ravel(index(belief))[0] * contexts[:, 0]
    if start is not None:
        methods["start"] = lambda self, dim: start(dim)
    return fb.pytree(type("Own", (Bias,), methods))()


def adam(k, belief, released):
    theta, state = belief
    updates, state = optax.adam(0.1).update(released.gram @ theta - released.bias, state, theta)
    return optax.apply_updates(theta, updates), state


TABLE = np.linspace(0, 1, 4, dtype=np.float32)
INDICES = {
    "linear": lambda key, t, b, x: x @ b,
    "boltzmann": lambda key, t, b, x: x @ b + jax.random.gumbel(key, (4,)) / jnp.sqrt(t + 1.0),
    "epsilon greedy": lambda key, t, b, x: jnp.where(
        jax.random.bernoulli(key, 0.1), jax.random.uniform(key, (4,)), x @ b
    ),
    "forced": lambda key, t, b, x: lax.cond(t < 8, lambda: (jnp.arange(4) == t % 4) * 1.0, lambda: x @ b),
    "softmax": lambda key, t, b, x: jax.nn.softmax(x @ b),
    "top two": lambda key, t, b, x: jnp.where(jnp.arange(4) == lax.top_k(x @ b, 2)[1][1], 2.0, x @ b),
    "loop": lambda key, t, b, x: jnp.stack([jnp.dot(one, b) for one in x]),
    "scan": lambda key, t, b, x: lax.scan(lambda c, one: (c, one @ b), 0, x)[1],
    "vmap": lambda key, t, b, x: jax.vmap(jnp.dot, (0, None))(x, b),
    "jitted": lambda key, t, b, x: jax.jit(lambda x: x @ b)(x),
    "normalised": lambda key, t, b, x: (x / jnp.linalg.norm(x, axis=1, keepdims=True)) @ b,
    "permuted": lambda key, t, b, x: (x @ b)[jax.random.permutation(key, 4)],
    "samples": lambda key, t, b, x: (x @ jax.random.multivariate_normal(key, b, jnp.eye(2), (16,)).T).max(1),
    "logistic": lambda key, t, b, x: jax.nn.sigmoid(x @ b),
    "probit": lambda key, t, b, x: stats.norm.cdf(x @ b),
    "gradient": lambda key, t, b, x: jax.grad(lambda b: jnp.tanh(x @ b).sum())(b)[0] * x[:, 0],
    "table": lambda key, t, b, x: x @ b + jnp.asarray(TABLE)[t % 4],
    "ucb": lambda key, t, b, x: x @ b + jnp.sqrt(jnp.einsum("ki,ij,kj->k", x, jnp.linalg.inv(V), x)),
    "network": lambda key, t, b, x: jax.nn.relu(x @ jnp.ones((2, 8)) + b[0]) @ jnp.ones(8),
    "ranks": lambda key, t, b, x: jnp.argsort(jnp.argsort(x @ b)) * 1.0,
}
UPDATES = {
    "ridge": by_update(lambda k, b, r: ridge(r)),
    "pseudo": by_update(lambda k, b, r: jnp.linalg.pinv(r.gram) @ r.bias),
    "cholesky": by_update(lambda k, b, r: linalg.cho_solve(linalg.cho_factor(r.gram + 9 * jnp.eye(2)), r.bias)),
    "tuple": by_update(lambda k, b, r: (r.bias, r.count), index=lambda b: b[0]),
    "dict": by_update(lambda k, b, r: {"theta": ridge(r)}, index=lambda b: b["theta"]),
    "named": by_update(lambda k, b, r: Pair(ridge(r), jnp.linalg.inv(r.gram + jnp.eye(2))), index=lambda b: b.theta),
    "dataclass": by_update(lambda k, b, r: Nested(theta=ridge(r), seen=k), index=lambda b: b.theta),
    "history": by_update(lambda k, b, r: b.at[k % 5].set(r.bias), lambda dim: jnp.zeros((5, dim))),
    "momentum": by_update(lambda k, b, r: 0.9 * b + 0.1 * r.bias, jnp.zeros),
    "adam": by_update(adam, lambda dim: (jnp.zeros(dim), optax.adam(0.1).init(jnp.zeros(dim))), lambda b: b[0]),
    "iterated": by_update(
        lambda k, b, r: lax.fori_loop(0, 5, lambda i, b: b - 0.1 * (r.gram @ b - r.bias), jnp.zeros(2))
    ),
    "doubling": by_update(lambda k, b, r: jnp.where(jnp.bitwise_count(k) <= 1, ridge(r), b), jnp.zeros),
    "random": by_update(lambda k, b, r: r.bias + jax.random.normal(jax.random.fold_in(KEY, k), (2,))),
}


def asks(requests, start=None):
    methods = {"requests": lambda self, key, t, memory, gained, since: requests(key, t, memory, since)}
    if start is not None:
        methods["start"] = lambda self, key, floor: start(key)
    return subclass(BoundSchedule, **methods)()


SCHEDULES = {
    "every": asks(lambda key, t, memory, since: since >= 5),
    "office": asks(lambda key, t, memory, since: (t % 24 > 7) & (t % 24 < 18)),
    "random": asks(lambda key, t, memory, since: jax.random.bernoulli(key, 0.1)),
    "drawn": asks(lambda key, t, memory, since: since >= memory, lambda key: jax.random.poisson(key, 5.0)),
    "table": asks(lambda key, t, memory, since: jnp.asarray(TABLE)[t % 4] > 0.5),
}


def groups(group):
    return subclass(fb.algos.Grouping, group=lambda self, key, released, last: group(key, released, last))()


GROUPINGS = {
    "halves": groups(lambda key, r, last: (r.bias[:, 0] > 0).astype(jnp.int32)),
    "nearest": groups(lambda key, r, last: jnp.linalg.norm(r.bias[:, None] - r.bias[:2], axis=-1).argmin(1)),
    "random": groups(lambda key, r, last: jax.random.randint(key, last.shape, 0, 2)),
    "spectral": groups(lambda key, r, last: (jnp.linalg.eigh(r.bias @ r.bias.T)[1][:, -1] > 0).astype(jnp.int32)),
}


def test_honest_parts_pass():
    assert len(INDICES) + len(UPDATES) + len(SCHEDULES) + len(GROUPINGS) >= 40
    for policy in (*map(by_index, INDICES.values()), *UPDATES.values()):
        check_policy(policy, SPEC)
        assert policy_doors(policy, SPEC, False, 5) == ()
    for schedule in SCHEDULES.values():
        check(schedule, 3)
        assert doors(schedule) == ()
    returning = dataclasses.replace(SPEC, n_users=6)
    assert [leak_of(grouping, returning) for grouping in GROUPINGS.values()] == [""] * len(GROUPINGS)


def tell(x):
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((2,), jnp.float32), x)  # this line


def inner(x):
    return lax.cond(x[0] > 0, lambda: jax.jit(tell)(x), lambda: x)


TOLD = {
    "update": by_update(lambda k, b, r: inner(r.bias)),
    "start": by_update(lambda k, b, r: b, lambda dim: inner(jnp.zeros(dim))),
    "index": by_index(lambda key, t, b, x: x @ inner(b)),
}


@pytest.mark.parametrize("method", TOLD)
def test_a_refusal_names_the_method_and_the_line(method):
    """Of the function that does it, however deep; not of a caller, of JAX, or of this package."""
    with pytest.raises(
        TypeError, match=rf"Own.{method} must .* pure_callback in .*test_ordinary.py, line .*# this line\)"
    ):
        check_policy(TOLD[method], SPEC)
