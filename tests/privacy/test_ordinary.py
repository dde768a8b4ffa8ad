"""Parts of one's own as people write them: what ordinary JAX code computes is post-processing, and passes."""

import dataclasses
import operator

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
import optax
from helpers import Bias
from honest import subclass
from jax import lax
from jax.scipy import linalg

import fedbandit_jax as fb
from fedbandit_jax.algos.clusters.streams import leak_of
from fedbandit_jax.algos.loops.doors import check_policy, policy_doors
from fedbandit_jax.core.programs import side_effect
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
    "associative_scan": lambda x: lax.associative_scan(jnp.add, x),
    "barrier": lax.optimization_barrier,
    "checkpoint": jax.checkpoint(jnp.sin),
    "cond": lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
    "custom_jvp": lambda x: jax.grad(lambda v: clipped(v).sum())(x),
    "custom_vjp": lambda x: jax.grad(lambda v: scaled(v).sum())(x),
    "expm": lambda x: linalg.expm(V),
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, y: y + i, x),
    "hessian": lambda x: jax.hessian(lambda v: (v**3).sum())(x[0]),
    "linearize": lambda x: jax.linearize(jnp.sin, x)[1](x),
    "lstsq": lambda x: jnp.linalg.lstsq(x, x[:, 0]),
    "named_call": jax.named_call(jnp.sin),
    "print": lambda x: jax.debug.print("{}", x),
    "ragged_dot": lambda x: lax.ragged_dot(x, V[None], jnp.array([4])),
    "scan": lambda x: lax.scan(lambda y, z: (y + z, z), x[0], x),
    "sqrtm": lambda x: linalg.sqrtm(V),
    "switch": lambda x: lax.switch(x.argmax(), [jnp.sin, jnp.cos], x),
    "vjp": lambda x: jax.vjp(jnp.sin, x)[1](x),
    "while_loop": lambda x: lax.while_loop(lambda y: y.sum() < 9, lambda y: y + 1, x),
}


def functions():
    """Name -> a function of x (4, 2)."""
    modules = {"jnp": jnp, "pairs": jnp, "linalg": jnp.linalg, "special": special, "random": jax.random}

    def given(kind, name, x):
        if kind == "random":
            return KEY, *GIVEN.get(name, ((4,),))
        return {"jnp": (x,), "pairs": (x, x), "linalg": (V + x[0, 0],), "special": (jnp.abs(x),)}[kind]

    def function(kind, name):
        return lambda x: operator.attrgetter(name)(modules[kind])(*given(kind, name, x))

    return {f"{kind}.{name}": function(kind, name) for kind, text in NAMES.items() for name in text.split()} | OTHERS


def test_ordinary_functions_pass():
    found = {name: side_effect(function, X) for name, function in functions().items()}
    assert len(found) >= 110
    assert {name: said for name, said in found.items() if said} == {}


# ---------------------------------------------------------------------------------------------------------------------
# Parts.


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
    "boltzmann": lambda key, t, b, x: x @ b + jax.random.gumbel(key, (4,)) / jnp.sqrt(t + 1.0),
    "forced": lambda key, t, b, x: lax.cond(t < 8, lambda: (jnp.arange(4) == t % 4) * 1.0, lambda: x @ b),
    "samples": lambda key, t, b, x: (x @ jax.random.multivariate_normal(key, b, jnp.eye(2), (16,)).T).max(1),
}
UPDATES = {
    "dict": by_update(lambda k, b, r: {"theta": ridge(r)}, index=lambda b: b["theta"]),
    "dataclass": by_update(lambda k, b, r: Nested(theta=ridge(r), seen=k), index=lambda b: b.theta),
    "adam": by_update(adam, lambda dim: (jnp.zeros(dim), optax.adam(0.1).init(jnp.zeros(dim))), lambda b: b[0]),
}


def asks(requests, start=None):
    methods = {"requests": lambda self, key, t, memory, gained, since: requests(key, t, memory, since)}
    if start is not None:
        methods["start"] = lambda self, key, floor: start(key)
    return subclass(BoundSchedule, **methods)()


SCHEDULES = {
    "office": asks(lambda key, t, memory, since: (t % 24 > 7) & (t % 24 < 18)),
    "drawn": asks(lambda key, t, memory, since: since >= memory, lambda key: jax.random.poisson(key, 5.0)),
    "table": asks(lambda key, t, memory, since: jnp.asarray(TABLE)[t % 4] > 0.5),
}


def groups(group):
    return subclass(fb.algos.Grouping, group=lambda self, key, released, last: group(key, released, last))()


GROUPINGS = {
    "nearest": groups(lambda key, r, last: jnp.linalg.norm(r.bias[:, None] - r.bias[:2], axis=-1).argmin(1)),
    "random": groups(lambda key, r, last: jax.random.randint(key, last.shape, 0, 2)),
    "spectral": groups(lambda key, r, last: (jnp.linalg.eigh(r.bias @ r.bias.T)[1][:, -1] > 0).astype(jnp.int32)),
}


def test_honest_parts_pass():
    for policy in (*map(by_index, INDICES.values()), *UPDATES.values()):
        check_policy(policy, SPEC)
        assert policy_doors(policy, SPEC, False, 5) == ()
    for schedule in SCHEDULES.values():
        check(schedule, 3)
        assert doors(schedule) == ()
    returning = dataclasses.replace(SPEC, n_users=6)
    assert [leak_of(grouping, returning) for grouping in GROUPINGS.values()] == [""] * len(GROUPINGS)
