"""Policies of one's own that do more than compute their results are refused; what ordinary JAX code writes passes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Bias
from jax.custom_batching import custom_vmap, sequential_vmap

import fedbandit_jax as fb
from fedbandit_jax.core import struct

ENV = fb.envs.sphere(n_agents=3, n_arms=4, dim=2, rewards="bernoulli")
BUDGET = fb.privacy.Budget(1.0, 0.1)
MEMORY = {}
TABLE = np.array([0.5, 2.0], np.float32)


def own(**methods):
    return fb.pytree(type("Own", (Bias,), methods))()


def run(policy, **options):
    algo = fb.algos.Federated(policy=policy, schedule=2, privacy=BUDGET)
    return fb.simulate(ENV, algo, horizon=6, key=jax.random.key(0), seeds=2, **options)


def claim(policy):
    algo = fb.algos.Federated(policy=policy, schedule=2, privacy=BUDGET)
    return algo.certificate(ENV.spec, 6).claim


def listens(self, k, belief, released):
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((2,), jnp.float32), released.bias)


def listens_from_the_second(self, k, belief, released):
    return released.bias if belief is None else listens(self, k, belief, released)


def io(self, key, t, belief, contexts):
    return jax.experimental.io_callback(np.asarray, jax.ShapeDtypeStruct((4,), jnp.float32), contexts @ belief)


def tells(self, key, t, belief, contexts):
    jax.lax.cond(t > 2, lambda: jax.debug.callback(MEMORY.update, {"contexts": contexts}), lambda: None)
    return contexts @ belief


@custom_vmap
def mixed(contexts):
    return contexts.sum(-1)


@mixed.def_vmap
def _(size, batched, contexts):
    return jnp.broadcast_to(contexts.sum((0, -1)), contexts.shape[:2]), True


def mixes(self, key, t, belief, contexts):
    return jax.jit(mixed)(contexts)


class Written(str):
    def format(self, *values, **named):
        MEMORY.update({"contexts": values})
        return ""


def prints_by_its_own(self, key, t, belief, contexts):
    jax.debug.print(Written("{}"), contexts)
    return contexts @ belief


def starts_by_listening(self, dim):
    return jax.pure_callback(np.ones, jax.ShapeDtypeStruct((2,), jnp.float32), (2,))


REFUSED = [
    ({"update": listens}, "Own.update .* got pure_callback in .*test_pure.py, line .*jax.pure_callback"),
    ({"update": listens_from_the_second}, "Own.update .* got pure_callback in .*test_pure.py"),
    ({"start": starts_by_listening}, "Own.start .* got pure_callback in .*test_pure.py"),
    ({"index": io}, "Own.index .* got io_callback in .*test_pure.py"),
    ({"index": tells}, "Own.index .* got debug_callback in .*calls_host = True"),
    ({"index": prints_by_its_own}, "Own.index .* got debug_print in .*calls_host = True"),
    ({"index": mixes}, "Own.index .* got custom_vmap_call in .*test_pure.py"),
]


@pytest.mark.parametrize(("methods", "words"), REFUSED)
def test_what_calls_the_host_does_not_run(methods, words):
    with pytest.raises(TypeError, match=words):
        run(own(**methods))


@pytest.mark.parametrize(("methods", "words"), REFUSED)
def test_what_calls_the_host_and_was_put_in_after_binding_proves_nothing(methods, words):
    bound = fb.algos.Federated(policy=own(), schedule=2, privacy=BUDGET).bind(ENV.spec, 6)
    assert fb.interfaces.certify(bound.replace(policy=own(**methods))).claim == "none"


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("index", lambda self, key, t, belief, contexts: contexts @ belief if t > 3 else contexts[:, 0]),
        ("update", lambda self, k, belief, released: jnp.asarray(np.linalg.inv(released.gram) @ released.bias)),
    ],
)
def test_errors_of_jax_say_in_which_method_they_were(method, body):
    with pytest.raises(jax.errors.JAXTypeError) as error:
        run(own(**{method: body}))
    assert error.value.__notes__[-1].startswith(f"Own.{method} must be a program of JAX: jnp.where in place of if")


def test_errors_say_what_a_method_was_given():
    with pytest.raises(TypeError) as error:
        run(own(update=lambda self, k, belief, released: released.bias[:1], start=lambda self, dim: jnp.zeros(1)))
    assert error.value.__notes__[-1].startswith("This happened in Own.index, which was given arguments of shapes")
    assert "(1,)" in error.value.__notes__[-1]


def test_a_schedule_that_calls_the_host_does_not_run():
    @fb.pytree
    class Bound(fb.schedules.BoundSchedule):
        def requests(self, key, t, memory, gained, since):
            return jax.pure_callback(lambda t: t % 5 == 0, jax.ShapeDtypeStruct((), bool), t)

    with pytest.raises(TypeError, match="Bound.requests .* got pure_callback in .*test_pure.py"):
        fb.schedules.check(Bound(), 3)
    assert fb.schedules.doors(Bound())


def test_values_of_traces_around_are_refused():
    def certificate(x):
        return claim(own(index=lambda self, key, t, belief, contexts: contexts @ belief + x)) == "certified"

    with pytest.raises(TypeError, match="Own.index .* got a value of a trace around it"):
        jax.jit(certificate)(1.0)


@jax.custom_jvp
def clipped(x):
    return jnp.clip(x, -1, 1)


clipped.defjvp(lambda primals, tangents: (clipped(*primals), tangents[0]))


@sequential_vmap
def one_by_one(x):
    return 2 * x


def prints(x):
    jax.debug.print("seen {}", x[0, 0])
    return x.sum(1)


def loops(x):
    total = jax.lax.fori_loop(0, 3, lambda i, y: y + x[:, 0], x[:, 1])
    total = jax.lax.while_loop(lambda y: y.sum() < 1, lambda y: y + 1, total)
    return jax.lax.scan(lambda y, z: (y + z, z), total, x.T)[0]


def square(x):
    return x.T @ x + jnp.eye(2)


ORDINARY = {
    "loops": loops,
    "cond": lambda x: jax.lax.cond(x.sum() > 0, lambda: x[:, 0], lambda: x[:, 1]),
    "vmap": jax.vmap(jnp.sum),
    "slogdet": lambda x: x[:, 0] * jnp.linalg.slogdet(square(x))[1],
    "svd": lambda x: x @ jnp.linalg.svd(square(x))[1],
    "eigh": lambda x: x @ jnp.linalg.eigh(square(x))[0],
    "solve": lambda x: x @ jnp.linalg.solve(square(x), x[0]),
    "split": lambda x: jnp.split(x, 2, axis=1)[0][:, 0],
    "array_split": lambda x: jnp.array_split(x, 2, axis=1)[1][:, 0],
    "hessian": lambda x: x @ jax.hessian(lambda v: (v**3).sum())(x[0])[0],
    "sqrtm": lambda x: x @ jax.scipy.linalg.sqrtm(square(x)).real[0],
    "logpdf": lambda x: jax.scipy.stats.multivariate_normal.logpdf(x, x[0], square(x)),
    "barrier": lambda x: jax.lax.optimization_barrier(x)[:, 0],
    "ragged_dot": lambda x: jax.lax.ragged_dot(x, square(x)[None], jnp.array([4]))[:, 0],
    "custom_jvp": lambda x: jax.grad(lambda v: clipped(v).sum())(x)[:, 0],
    "sequential_vmap": lambda x: one_by_one(x[:, 0]),
    "constants": lambda x: x @ TABLE,
    "print": prints,
}
DRAWS = {
    "orthogonal": lambda key: jax.random.orthogonal(key, 2)[0],
    "clone": lambda key: jax.random.normal(jax.random.clone(key), (2,)),
    "key data": lambda key: jax.random.normal(jax.random.wrap_key_data(jax.random.key_data(key)), (2,)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_code_is_certified(name):
    assert claim(own(index=lambda self, key, t, belief, contexts: ORDINARY[name](contexts))) == "certified"


@pytest.mark.parametrize("name", DRAWS)
def test_ordinary_draws_are_certified(name):
    assert claim(own(index=lambda self, key, t, belief, contexts: contexts @ DRAWS[name](key))) == "certified"


@pytest.mark.parametrize("name", ["print", "sequential_vmap", "loops", "sqrtm"])
def test_ordinary_code_runs(name, capfd):
    result = run(own(index=lambda self, key, t, belief, contexts: ORDINARY[name](contexts)))
    assert result.certificate.claim == "certified"
    assert ("seen" in capfd.readouterr().out) == (name == "print")


def test_arrays_that_change_are_refused():
    memory = jax.new_ref(jnp.zeros((4, 2)))

    def remembers(self, key, t, belief, contexts):
        memory[...] = contexts
        return contexts @ belief

    with pytest.raises(TypeError, match="Own.index must compute"):
        run(fb.pytree(type("Own", (Bias,), {"index": remembers}))())


@pytest.mark.slow
def test_who_says_that_it_calls_the_host_runs_and_proves_nothing():
    MEMORY.clear()
    result = run(fb.pytree(type("Own", (Bias,), {"index": tells, "calls_host": True}))())
    assert result.certificate.claim == "none"
    assert MEMORY["contexts"].shape == (4, 2)


def test_policies_that_differ_in_what_equality_leaves_out():
    """Each runs its own program, although their static fields are equal."""

    @dataclasses.dataclass(frozen=True)
    class Settings:
        sign: float = dataclasses.field(compare=False)

    @fb.pytree
    class Signed(Bias):
        settings: Settings = fb.static()

        def index(self, key, t, belief, contexts):
            return self.settings.sign * contexts[:, 0]

    assert Settings(1.0) == Settings(-1.0)
    both = {str(sign): fb.algos.Federated(policy=Signed(settings=Settings(sign)), schedule=2) for sign in (1.0, -1.0)}
    together = fb.sweep(ENV, both, horizon=20, key=jax.random.key(0), seeds=2)
    alone = fb.sweep(ENV, {"-1.0": both["-1.0"]}, horizon=20, key=jax.random.key(0), seeds=2)
    np.testing.assert_array_equal(together["-1.0"].regret, alone["-1.0"].regret)
    assert not np.array_equal(together["1.0"].regret, together["-1.0"].regret)


def test_the_seal_is_the_package_s():
    with pytest.raises(TypeError, match="package's own classes"):
        struct.sealed(Bias)


def test_short_floats_do_not_swallow_users():
    """In bfloat16 the 257th user of a sum would count nothing, and later ones would count double or more."""
    statistic = fb.algos.Federated(policy=fb.algos.Thompson(), privacy=BUDGET).bind(ENV.spec, 50).mechanism.statistic
    x, y, *_ = jax.jit(lambda: statistic.admit(jnp.full((2, 3), 0.7, jnp.bfloat16), jnp.ones(3, jnp.bfloat16)))()
    assert x.dtype == y.dtype == jnp.float32
    assert np.linalg.norm(x, axis=0).max() <= 1 + 1e-6


class Tiny(fb.privacy.Release):
    """Messages in units that float32 flushes to zero."""

    def encode_init(self, shape):
        return ()

    def encode(self, state, k, gamma):
        return 8.6e37 * gamma[None], state

    def init(self, shape):
        return jnp.zeros(shape)

    def decode(self, state, k, message):
        total = state + message[0] / 8.6e37
        return total, total


class Common(fb.privacy.Release):
    """A first message of little weight, whose noise is in all prefixes and drowns the others' in float32."""

    def encode_init(self, shape):
        return jnp.zeros(shape)

    def encode(self, later, k, gamma):
        later = jnp.where(k == 1, later, later + gamma)
        return jnp.where(k == 1, gamma / 2**26, later)[None], later

    def init(self, shape):
        return jnp.zeros(shape)

    def decode(self, first, k, message):
        first = jnp.where(k == 1, message[0] * 2**26, first)
        return jnp.where(k == 1, first, first + message[0]), first


@pytest.mark.parametrize("release", [Tiny, Common])
def test_releases_whose_noise_float32_loses(release):
    mechanism = fb.privacy.Mechanism(BUDGET, release=release)
    algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=2, privacy=mechanism)
    with pytest.raises(ValueError, match=f"{release.__name__} must have noise that float32 holds"):
        algo.certificate(ENV.spec, 20)


@pytest.mark.parametrize("schedule", [10, fb.schedules.Geometric(2.0, first=10)])
def test_scorers_of_ones_own_are_not_asked(script, schedule):
    """They would not run as the pure functions that `index` is."""

    @fb.pytree
    class Scoring(Bias):
        scores_alone = True

        def scorer(self, t, prepared):
            raise AssertionError("asked")

    algo = fb.algos.Federated(policy=Scoring(), schedule=schedule, privacy=fb.privacy.Budget(1.0, 0.1))
    assert not algo.bind(script.spec, 20).scores_alone
