"""User classes: told apart by the compiler, and told what they must return before anything is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine import layout

ENV = fb.envs.sphere(3, 4, 5, rewards="bernoulli")


def sweep(algos, env=ENV):
    return fb.sweep(env, algos, horizon=40, key=jax.random.key(0), n_seeds=3)


def simulate(algo=None, env=ENV):
    return sweep({"it": algo or fb.algos.fed_lin_ucb(batch=5)}, env)["it"]


def test_classes_with_equal_fields_are_different_programs():
    """jax 0.10.2 gives registered dataclasses with the same fields equal tree structures: ours must differ."""

    @fb.pytree
    class First(fb.Algorithm):
        def init(self, key, spec):
            return ()

        def act(self, key, t, local, offered):
            return jnp.zeros(3, jnp.int32)

        def learn(self, t, local, offered, arms, rewards):
            return local, None

    @fb.pytree
    class Last(First):
        def act(self, key, t, local, offered):
            return jnp.full(3, 3, jnp.int32)

    assert jax.tree.structure(First()) != jax.tree.structure(Last())
    assert jax.tree.structure(First()) == jax.tree.structure(First())
    both = sweep({"first": First(), "last": Last()})
    assert (both["first"].regret[:, -1] != both["last"].regret[:, -1]).all()
    layout._init.cache_clear()
    layout._advance.cache_clear()  # what was compiled
    np.testing.assert_allclose(simulate(algo=Last()).regret, both["last"].regret, atol=1e-4)


@fb.pytree
class Misfit:
    """Sphere, but for what one test changes."""

    spec = ENV.spec
    change: dict = fb.static()

    def init(self, key):
        return ENV.init(key)

    def observe(self, key, world, t):
        offered, world = ENV.observe(key, world, t)
        return self.change.get("observe", lambda o, w: (o, w))(offered, world)

    def pull(self, key, world, offered, arms):
        feedback = ENV.pull(key, world, offered, arms)
        return self.change.get("pull", lambda f: f)(feedback)


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("observe", lambda o, w: o, r"env.observe must return \(fb.Round, world\)"),
        (
            "observe",
            lambda o, w: (o._replace(contexts=o.contexts[:2]), w),
            r"contexts of shape \(3, 4, 5\), as env.spec",
        ),
        ("observe", lambda o, w: (o._replace(mask=jnp.ones((4, 3), bool)), w), r"boolean mask of shape \(3, 4\)"),
        ("observe", lambda o, w: (o, w._replace(theta=w.theta[:2])), "a world of unchanged structure"),
        ("pull", lambda f: (f.reward, f.regret), r"env.pull must return fb.Feedback\(reward, regret\)"),
        ("pull", lambda f: f._replace(reward=f.reward[:, None]), r"float reward of shape \(3,\)"),
        ("pull", lambda f: f._replace(regret=f.regret.sum()), r"float regret of shape \(3,\)"),
    ],
)
def test_misfit_environments(method, change, words):
    with pytest.raises(TypeError, match=words):
        simulate(env=Misfit(change=Changes({method: change})))


class Changes(dict):
    """Hashable by identity."""

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("method", "value", "words"),
    [
        ("act", lambda *_: jnp.zeros(3), r"misfit's act must return integer arms of shape \(3,\)"),
        ("act", lambda *_: jnp.zeros(2, jnp.int32), r"misfit's act must return integer arms of shape \(3,\)"),
        ("learn", lambda local, *_: local, r"misfit's learn must return \(local state, record\)"),
        ("learn", lambda local, *_: (local[:1], None), "misfit's learn must return a local state of unchanged"),
        ("sync", lambda state, *_: state, r"misfit's sync must return \(state, fb.Report\)"),
    ],
)
def test_misfit_algorithms(method, value, words):
    def body(local, record):
        return (local, record) if method != "learn" else value(local)

    @fb.pytree
    class Misfitting(fb.Algorithm):
        def init(self, key, spec):
            return jnp.zeros(3)

        def act(self, key, t, local, offered):
            return value() if method == "act" else jnp.zeros(3, jnp.int32)

        def learn(self, t, local, offered, arms, rewards):
            return body(local, None)

        def sync(self, key, k, state, local, records):
            return value(state) if method == "sync" else super().sync(key, k, state, local, records)

    with pytest.raises(TypeError, match=words):
        sweep({"misfit": Misfitting()})
