"""Are the shapes and dtypes in annotations true? In a process of its own, beartype asks at every call of small runs."""

import functools
import inspect
import subprocess
import sys
import types
import typing

import beartype
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype.door import is_bearable
from beartype.vale import Is
from jaxtyping import TypeCheckError, install_import_hook, jaxtyped

import fedbandit_jax as fb  # its modules are imported when they are used, by then under the hook

MODULES = ["interfaces", "linalg", "algos.policies", "core.ridge", "privacy.statistic"]
MODULES += ["privacy.releases", "privacy.spectral", "schedules", "envs", "networks", "data.datasets"]
MODULES = [f"fedbandit_jax.{name}" for name in MODULES]
REGROUP = ("agents", "tile", "join", "prepare")  # have posteriors of two numbers A of agents
CONF = beartype.BeartypeConf(is_pep484_tower=True)  # an int is a float


def checked(function):
    """beartype, which is made to look into NamedTuples; jaxtyping hands it every function of `MODULES`."""
    if function.__name__ not in REGROUP:
        function.__annotations__ = {name: deep(hint) for name, hint in function.__annotations__.items()}
    return beartype.beartype(function, conf=CONF)


def deep(hint):
    """The annotation, with every NamedTuple also asked whether its fields are what they are annotated with."""
    if is_named_tuple(hint):
        return typing.Annotated[hint, Is[fits]]
    parts = tuple(deep(part) for part in typing.get_args(hint))
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(lambda a, b: typing.Union[a, b], parts)  # noqa: UP007
    return tuple[parts] if origin is tuple and parts else hint


def is_named_tuple(kind):
    return inspect.isclass(kind) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def fits(value):
    """Inside a call, an axis has the same size in all arguments and in all their fields."""
    return all(is_bearable(part, hint, conf=CONF) for part, hint in zip(value, fields(type(value))))


@functools.cache
def fields(kind):
    return [deep(hint) for hint in typing.get_type_hints(kind).values()]


@pytest.mark.slow  # and a step of .ci/run
def test_annotations_are_true():
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]


def main():
    install_import_hook(MODULES, "test_types.checked")
    for env, algo in programs():
        trace(env, algo)
    jax.eval_shape(by_hand, jax.random.key(0), jnp.int32(1), jnp.ones((2, 5)))
    assert not {name for name in MODULES if name not in sys.modules}, "modules that were moved are asked nothing"
    jax.eval_shape(wrong_shapes_are_refused, jax.random.key(0))


def trace(env, algo, horizon=40):
    """Traces the beginning and the first step of a run, in which all numbers of environment and algorithm may vary."""
    from fedbandit_jax.engine.runners import make_runner

    def first_step(run, key):
        world, state = run.init(key)
        metrics = run.step(key, world, state, jnp.int32(0))[2]
        with jaxtyped("context"):
            assert fits(metrics), metrics

    jax.eval_shape(first_step, make_runner(env, algo.bind(env.spec, horizon), horizon), jax.random.key(0))


def programs():
    """Every environment, and algorithms of every family, of the contract; axes differ in size wherever they can."""
    import examples as ex

    silos, users = fb.envs.sphere(ex.M, ex.K, 5, rewards="bernoulli"), fb.envs.clustered(5, 2, 2, n_arms=4, dim=3)
    for row in ex.EXAMPLES.values():
        if row not in ex.DEAR:
            yield {id(ex.SCRIPT): silos, id(ex.SPHERE): silos, id(ex.USERS): users}.get(id(row.env), row.env), row.algo
    for env in {id(env): env for envs in ex.WORLDS.values() for env in envs if env is not ex.ARMS_BACK}.values():
        yield env, fb.algos.LinUCB()
    yield fb.envs.sphere(3, 4, 18), fb.algos.fed_lin_ucb(schedule=2)  # other layouts, see `ridge.UNROLL_DIM`


def by_hand(key, k, x):
    """What `programs` do not call: releases of every kind as they act on arrays, and some single functions."""
    from fedbandit_jax.privacy.packing import pack_users
    from fedbandit_jax.privacy.releases import RELEASES
    from fedbandit_jax.privacy.releases.matrices import Explicit

    one, sums = np.eye(3, dtype=np.float32), np.tril(np.ones((3, 3), np.float32))
    own = Explicit(n_syncs=3, of="Mine", c=one, r=sums)
    returning = (fb.privacy.BandMF(2, fb.privacy.Users(2, 1)), fb.privacy.BISR(2), fb.privacy.Discounted(0.5))
    for release in (*(kind(3) for kind in (*RELEASES.values(), *returning)), own):
        message, _ = release.encode(release.encode_init(x.shape), k, x)
        prefix, _ = release.decode(release.init(x.shape), k, message)
        assert prefix.shape == message.shape == x.shape
        with jax.ensure_compile_time_eval():  # numbers of the host
            assert release.encoder().shape[1:] == release.prefix_variance().shape == (3,)
    fb.linalg.GaussianBelief.solve(jnp.eye(5), jnp.ones(5)).std(x)
    pack_users(x, x[0])
    fb.schedules.Every(2).bind(fb.schedules.Setting(3, 2, 10, 1.0, 1.0)).requests(key, k, (), None, k)


def wrong_shapes_are_refused(key):
    env = fb.envs.sphere(2, 3, 4)
    world = env.init(key)
    offered, world = env.observe(key, world, 0)
    arms = jnp.zeros(2, jnp.int32)
    env.pull(key, world, offered, arms)
    solve = fb.linalg.GaussianBelief.solve
    solve(jnp.eye(3), jnp.ones(3))

    class Flat(type(env)):
        def observe(self, key, world, t):
            offered, world = super().observe(key, world, t)
            return offered._replace(contexts=offered.contexts[:, 0]), world  # (M, d)

    flat = fb.pytree(Flat)(rewards=env.rewards, spec=env.spec)
    for refused in (
        lambda: solve(jnp.eye(3), jnp.ones(2)),
        lambda: solve(jnp.eye(3), jnp.ones(3, int)),
        lambda: trace(flat, fb.algos.fed_lin_ucb(schedule=2)),
        lambda: env.pull(key, world, offered, jnp.zeros(3, jnp.int32)),
        lambda: env.pull(key, world, offered._replace(contexts=jnp.zeros((2, 3, 4), int)), arms),
        lambda: fb.data.Queries(np.eye(3), np.array([3]), np.ones(2), "theta is too short"),
    ):
        try:
            refused()
        except TypeCheckError:
            continue
        raise AssertionError(f"not refused: {inspect.getsource(refused)}")


if __name__ == "__main__":
    main()
