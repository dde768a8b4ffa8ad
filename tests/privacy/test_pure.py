"""Policies of one's own run as the pure functions that they are by themselves, or prove nothing."""

import dataclasses
import itertools
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import deep
from jax.custom_batching import custom_vmap

import fedbandit_jax as fb
from fedbandit_jax.core import lapack, ridge, struct

ENV = fb.envs.sphere(n_agents=3, n_arms=4, dim=2, rewards="bernoulli")
BUDGET = fb.privacy.Budget(1.0, 0.1)
MEMORY = {}


class Bias(fb.Policy):
    """Plays the arm that points to the noisy bias."""

    def update(self, k, belief, released):
        return released.bias

    def index(self, key, t, belief, contexts):
        return contexts @ belief


def run(policy, **options):
    algo = fb.algos.Federated(policy=policy, schedule=2, privacy=BUDGET)
    return fb.simulate(ENV, algo, horizon=6, key=jax.random.key(0), seeds=2, **options)


def listens(self, k, belief, released):
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct((2,), jnp.float32), released.bias)


def tells(self, key, t, belief, contexts):
    jax.debug.callback(MEMORY.update, {"contexts": contexts})
    return contexts @ belief


def prints(self, key, t, belief, contexts):
    jax.lax.cond(t > 2, lambda: jax.debug.print("{}", contexts), lambda: None)
    return contexts @ belief


@custom_vmap
def mixed(contexts):
    return contexts.sum(-1)


@mixed.def_vmap
def _(size, batched, contexts):
    return jnp.broadcast_to(contexts.sum((0, -1)), contexts.shape[:2]), True


def mixes(self, key, t, belief, contexts):
    return jax.jit(mixed)(contexts)


class Impostor:
    """A batching rule that passes for one of the package's own wherever two are compared."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash(lapack._rules[0])

    def __call__(self, size, batched, contexts):
        return jnp.broadcast_to(contexts.sum((0, -1)), contexts.shape[:2]), True


disguised = custom_vmap(lambda contexts: contexts.sum(-1))
disguised.def_vmap(Impostor())


def mixes_in_disguise(self, key, t, belief, contexts):
    return disguised(contexts)


def peeks(self, k, belief, released):
    """Looks for the raw rewards in the frames that called it."""
    frame = sys._getframe()
    while frame is not None:
        if "records" in frame.f_locals:
            return frame.f_locals["records"].rows.sum() * jnp.ones(2)
        frame = frame.f_back
    return released.bias


IMPURE = [
    ({"update": listens}, r"Own\.(start|update) .* got pure_callback"),
    ({"index": tells}, "Own.index .* got debug_callback"),
    ({"index": prints}, "Own.index .* got debug_print"),
    ({"index": mixes}, "Own.index .* got custom_vmap_call"),
    ({"index": mixes_in_disguise}, "Own.index .* got custom_vmap_call"),
    ({"update": peeks}, r"Own\.(start|update) .* got a value from outside"),
]


@pytest.mark.parametrize(("methods", "words"), IMPURE)
def test_impure_policies_do_not_run(methods, words):
    own = fb.pytree(type("Own", (Bias,), methods))
    with pytest.raises(TypeError, match=words):
        run(own())


def test_arrays_that_change_are_not_pure():
    memory = jax.new_ref(jnp.zeros((4, 2)))

    def remembers(self, key, t, belief, contexts):
        memory[...] = contexts
        return contexts @ belief

    with pytest.raises(TypeError, match="must be a pure function"):
        run(fb.pytree(type("Own", (Bias,), {"index": remembers}))())


@pytest.mark.slow
def test_who_says_that_it_is_not_pure_runs_and_proves_nothing():
    MEMORY.clear()
    result = run(fb.pytree(type("Own", (Bias,), {"index": tells, "pure": False}))())
    assert result.certificate.claim == "none"
    assert MEMORY["contexts"].shape == (4, 2)


def test_what_sees_a_batch_does_not_see_it():
    """What looks for the tracer of a batch finds that of its own trace."""
    seen = set()

    def looks(self, key, t, belief, contexts):
        seen.add(type(contexts).__name__)
        return contexts @ belief

    assert run(fb.pytree(type("Own", (Bias,), {"index": looks}))()).certificate.claim == "certified"
    assert seen
    assert not any("Batch" in name for name in seen)


@pytest.mark.slow
class Listener:
    """What stands where a belief should have an array, and is told what meets it."""

    def __init__(self, array):
        self.array, self.shape, self.ndim = array, array.shape, array.ndim

    def __len__(self):
        return len(self.array)

    def __getitem__(self, place):
        HEARD.append(place)
        return self.array[place]

    def __mul__(self, other):
        HEARD.append(other)
        return self.array * other


HEARD = []
jax.tree_util.register_pytree_node(Listener, lambda one: ((one.array,), None), lambda _, leaves: Listener(*leaves))


class Pair(NamedTuple):
    """Called like what `fb.algos.UCB` keeps, without being it."""

    inverse: Any
    theta: Any


@fb.pytree
class Keeping(fb.Policy):
    """A policy of one's own that keeps a matrix, in what it calls a posterior."""

    kind: Any = fb.static(default=None)
    keeps_matrix, rho = True, (5.0, 5.0)

    def update(self, k, belief, released):
        inverse = jnp.linalg.inv(released.gram + 100 * jnp.eye(released.dim))
        kept = inverse[np.tril_indices(released.dim)][:, None], (inverse @ released.bias)[:, None]
        return Estimate(released.gram, self.kind(ridge.Posterior(*kept)), jnp.float32(0))

    def index(self, key, t, belief, contexts):
        return contexts @ jax.tree.leaves(belief.posterior)[1][:, 0]


class Estimate(NamedTuple):
    gram: Any
    posterior: Any
    log_det: Any


def honest_posterior(solved):
    return solved


def own_pair(solved):
    return Pair(*solved)


def own_arrays(solved):
    return ridge.Posterior(*map(Listener, solved))


@pytest.mark.parametrize(
    ("kind", "agents"),
    deep(itertools.product([honest_posterior, own_pair, own_arrays], ["together", "one at a time"]), keep={2, 3, 4, 5}),
)
def test_what_a_policy_keeps_is_not_told_what_meets_it(kind, agents):
    """A schedule that reads what users add needs the policy's matrix, and meets it with their features and rewards."""
    parts = dict(policy=Keeping(kind=kind), schedule=fb.schedules.PrivateLogDet(0.3, share=0.2, max_syncs=2))
    if agents == "together":
        env = fb.envs.sphere(3, 4, 5, rewards="bernoulli")
        algo = fb.algos.Federated(**parts, privacy=fb.privacy.Mechanism(BUDGET))
    else:
        env = fb.envs.clustered(n_users=3, n_servers=1, n_clusters=1, dim=5, n_arms=4)
        algo = fb.algos.AsyncFederated(**parts, privacy=fb.privacy.Mechanism(BUDGET, visits=1))
    run = dict(horizon=6, key=jax.random.key(0), seeds=1)
    if kind is honest_posterior:
        assert fb.simulate(env, algo, **run).certificate.claim == "certified"
        return
    HEARD.clear()
    with pytest.raises(TypeError, match="policy must keep a matrix as fb.algos.UCB does, in belief.posterior"):
        fb.simulate(env, algo, **run)
    assert HEARD == []


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


@pytest.mark.slow
def test_keys_may_be_taken_apart():
    """`jax.random.key_data` is pure, although JAX's list of operations leaves it out."""

    def index(self, key, t, belief, contexts):
        own = jax.random.wrap_key_data(jax.random.key_data(jax.random.fold_in(key, t)))
        return jax.random.uniform(own, contexts.shape[:1])

    assert run(fb.pytree(type("Own", (Bias,), {"index": index}))()).certificate.claim == "certified"


def test_the_seal_is_the_package_s():
    with pytest.raises(TypeError, match="package's own classes"):
        struct.sealed(Bias)


def test_short_floats_do_not_swallow_users():
    """In bfloat16 the 257th user of a sum would count nothing, and later ones would count double or more."""
    statistic = fb.algos.Federated(policy=fb.algos.Thompson(), privacy=BUDGET).bind(ENV.spec, 50).mechanism.statistic
    x, y, _ = jax.jit(lambda: statistic.admit(jnp.full((2, 3), 0.7, jnp.bfloat16), jnp.ones(3, jnp.bfloat16)))()
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


def test_classes_of_classes_are_doors(script):
    """What a class says of itself is not what its class of classes says."""

    class Meta(type):
        reads = property(lambda cls: "log_det", lambda cls, value: None)

    @fb.pytree
    class Sly(fb.schedules.BoundSchedule, metaclass=Meta):
        reads = "nothing"

        def requests(self, key, t, memory, gained, since):
            return gained >= 0.7

    assert fb.schedules.doors(Sly())

    class Plain(type):
        pass

    @fb.pytree
    class Quiet(fb.Policy, metaclass=Plain):
        def update(self, k, belief, released):
            return released.bias

        def index(self, key, t, belief, contexts):
            return contexts @ belief

    algo = fb.algos.Federated(policy=Quiet(), schedule=10, privacy=fb.privacy.Budget(1.0, 0.1))
    assert algo.certificate(script.spec, 20).claim == "none"


@pytest.mark.parametrize("schedule", [10, fb.schedules.Geometric(2.0, first=10)])
def test_scorers_of_ones_own_are_not_asked(script, schedule):
    """They would not run as the pure functions that `index` is."""

    @fb.pytree
    class Scoring(fb.Policy):
        scores_alone = True

        def update(self, k, belief, released):
            return released.bias

        def index(self, key, t, belief, contexts):
            return contexts @ belief

        def scorer(self, t, prepared):
            raise AssertionError("asked")

    algo = fb.algos.Federated(policy=Scoring(), schedule=schedule, privacy=fb.privacy.Budget(1.0, 0.1))
    assert not algo.bind(script.spec, 20).scores_alone
