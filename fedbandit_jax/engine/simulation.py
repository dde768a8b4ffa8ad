"""`simulate` and `sweep`, which return a `Result`, and `rollout`, one run as a pure function.

All arguments are checked before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack, overload

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int, Key

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.engine.driver import execute
from fedbandit_jax.engine.options import Run, RunOptions, documented
from fedbandit_jax.engine.prepare import Configuration, Environments, as_environment, bind, expand
from fedbandit_jax.engine.record import Record, Recording
from fedbandit_jax.engine.runners import Runner
from fedbandit_jax.engine.store import Executor, Stored
from fedbandit_jax.interfaces import Algorithm, Environment, Metrics, Status
from fedbandit_jax.report.result import Result


class SimulationError(RuntimeError):
    """Raised if the status of a seed is not OK. Its `.result` holds everything computed."""

    def __init__(self, message: str, result: Result):
        super().__init__(message)
        self.result = result


@documented
def simulate(env: Environment, algo: Algorithm, **options: Unpack[RunOptions]) -> Result:
    """Runs one algorithm for `horizon` rounds under several seeds.

    Args:
        env: an environment, for instance `fb.envs.sphere(...)`.
        algo: an algorithm, for instance `fb.algos.fed_lin_ucb()`.
        **options: of the run.

    Returns:
        An `fb.Result` with regret of shape (n_seeds, n_records), cumulative over rounds and summed over agents.

    Raises:
        SimulationError: see `throw`.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(epsilon=1.0, delta=0.1))
        >>> result = fb.simulate(env, algo, horizon=200, key=jax.random.key(0), seeds=4)
        >>> result.regret.shape, result.certificate.claim
        ((4, 200), 'certified')
    """
    validate.instance("algo", algo, Algorithm, "an fb.Algorithm")
    _concrete("simulate", env, algo, options.get("key"))
    run = Run.of(options)
    one = {algo.name: Configuration(as_environment("env", env), algo, {"algorithm": algo.name})}
    found = execute(one, run) if run.store is None else Stored(one, run).result(None)
    return _checked(found[algo.name], run.throw)


@overload
def sweep(
    env: Environments,
    algos: Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    executor: Executor | None = None,
    part: None = None,
    **options: Unpack[RunOptions],
) -> Result: ...


@overload
def sweep(
    env: Environments,
    algos: Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    executor: Executor | None = None,
    part: tuple[int, int],
    **options: Unpack[RunOptions],
) -> int: ...


@documented
def sweep(
    env: Environments,
    algos: Mapping[str, Algorithm] | Sequence[Algorithm],
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    executor: Executor | None = None,
    part: tuple[int, int] | None = None,
    **options: Unpack[RunOptions],
) -> Result | int:
    """Runs several algorithms, each over a grid of parameters, on the same users and reward noise.

    Configurations that differ only in numbers run in one compiled program, which draws the users once. The others are
    compiled separately.

    Args:
        env: an environment such as `fb.envs.sphere(...)`; name -> environment; or a function that returns
            environments, such as `fb.envs.sphere` itself. The grid may then vary its parameters.
        algos: label -> algorithm, or algorithms with distinct names.
        grid: parameter -> distinct values, for instance {"epsilon": [0.2, 1, 5], "n_agents": [10, 100]}. A nested
            parameter is a path such as "policy.theta_norm", or its last part if that is unique, see
            `algo.parameters()`. "env.n_agents" is a parameter of `env`. An algorithm without the parameter runs once in
            every environment.
        executor: computes the pieces of a store, in processes or machines that see the same folder. It needs the
            `submit` of `concurrent.futures.Executor`: a `ProcessPoolExecutor` that spawns its workers, or a client of
            Dask, mpi4py.futures, submitit or Ray. Default: this process.
        part: (i, n) computes only every n-th piece from the i-th on, 0 <= i < n, into the store, for independent
            tasks. In a SLURM job array submitted with `--array=0-19`, use SLURM_ARRAY_TASK_ID and
            SLURM_ARRAY_TASK_COUNT. Afterwards the same call without `part` gathers the result, and computes the
            pieces of lost tasks.
        **options: of the run.

    Returns:
        An `fb.Result` with regret of shape (n_configurations, n_seeds, n_records). `result[label]` selects one
        configuration, `result.sel(epsilon=1)` one point of the grid. With `part`: the number of computed runs,
        configurations times seeds.

    Raises:
        ValueError, TypeError, SimulationError: as in `simulate`.

    Example:
        >>> import jax, tempfile, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
        >>> algos = [fb.algos.fed_lin_ucb(), fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1))]
        >>> result = fb.sweep(env, algos, grid={"epsilon": [1, 5]}, horizon=200, key=jax.random.key(0), seeds=4)
        >>> result.labels
        ('FedLinUCB', 'Private-FedLinUCB(epsilon=1)', 'Private-FedLinUCB(epsilon=5)')
        >>> one = dict(horizon=200, key=jax.random.key(0), seeds=16, store=tempfile.mkdtemp())
        >>> [fb.sweep(env, algos[:1], part=(i, 2), **one) for i in range(2)]  # runs that each task computed
        [8, 8]
        >>> fb.sweep(env, algos[:1], **one).provenance["computed"]  # pieces
        0
    """
    _concrete("sweep", options.get("key"))
    run = Run.of(options)
    configurations = expand(env, algos, {} if grid is None else grid)
    if not (executor is None or callable(getattr(executor, "submit", None))):
        raise BadType("executor", "must have the method submit, or be None", executor)
    context = getattr(executor, "_mp_context", None)  # of a pool of processes
    if context is not None and context.get_start_method() == "fork":
        must = "must not fork processes, which deadlocks once JAX has run: give it multiprocessing.get_context('spawn')"
        raise BadValue("executor", must, executor)
    if run.store is None:
        for name, value in (("executor", executor), ("part", part)):
            if value is not None:
                raise BadValue(name, "must be None unless there is a store", value)
        return _checked(execute(configurations, run), run.throw)
    if part is not None:
        i, n = _part(part)
        return Stored(configurations, run).compute(i, n, executor)[1]
    return _checked(Stored(configurations, run).result(executor), run.throw)


def _concrete(name: str, *given: Any) -> None:
    """Raises `TypeError` if a function that compiles and runs programs is called under a JAX transformation."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((*given, jax.device_put(0)))):
        got = "traced ones: under jax.jit, jax.vmap or jax.grad use fb.rollout, a pure function"
        raise BadType(f"key, env and algo of fb.{name}", "must be numbers", None, got=got)


def _part(part: Any) -> tuple[int, int]:
    pair = validate.integer_array("part", part).tolist()
    if len(pair) != 2 or not 0 <= pair[0] < pair[1]:
        raise BadValue("part", "must be two integers (i, n) with 0 <= i < n", part)
    return pair[0], pair[1]


def _checked(result: Result, throw: bool) -> Result:
    if not (throw and result.status.any()):
        return result
    where = [f"{label}: seeds {', '.join(map(str, result.seeds[result[label].status != 0]))}" for label in result
             if result[label].status.any()]  # fmt: skip
    flags = Status(int(np.bitwise_or.reduce(result.status, axis=None)))
    raise SimulationError(
        f"{flags.name} in {'; '.join(where)}. Do not use the regrets of these seeds. "
        f"{' '.join(flags.sentences())} The exception's .result holds all curves; throw=False returns them.",
        result,
    )


class Rollout(NamedTuple):
    """Curve, status bits and records of one run."""

    regret: Float[Array, " T"]  # cumulative, summed over agents; float32
    status: Int[Array, ""]  # bits of `fb.Status`, 0 if OK; check them, nothing is raised
    records: dict[str, Array]  # name -> (recorded rounds, ...)


def rollout(
    env: Environment, algo: Algorithm, key: Key[Array, ""], *, horizon: int, record: Record | None = None
) -> Rollout:
    """Plays one run of `horizon` rounds as a pure function, for `jax.jit` and `jax.vmap`.

    With the key `jax.random.fold_in(key0, i)` it equals seed i of `fb.simulate(env, algo, key=key0)`, up to rounding.
    It has no certificate, checkpoint or progress bar, and does not check the memory that it needs.

    Args:
        env: an environment; its numbers may be traced.
        algo: an algorithm, or a bound one, `algo.bind(env.spec, horizon)`, with numbers that may be traced. Then one
            compiled program serves many parameters, and vmap runs them side by side. A multi-armed algorithm's number
            of batches must not be traced, since each batch is a step. The privacy noise of a bound algorithm depends on
            the key alone. Give each private algorithm its own key, or they share their noise.
        key: typed PRNG key; may be traced.
        horizon: number of rounds T.
        record: as in `fb.simulate`, by default at every round.

    Returns:
        A `Rollout` with regret of shape (T,).

    Raises:
        TypeError: the regret is differentiated, which has no gradient.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env, algo = fb.envs.gap(4, 5, 3), fb.algos.fed_lin_ucb(schedule=10)
        >>> run = jax.jit(jax.vmap(lambda key: fb.rollout(env, algo, key, horizon=50).regret))
        >>> run(jax.random.split(jax.random.key(0), 8)).shape
        (8, 50)
    """
    as_environment("env", env)
    validate.instance("algo", algo, Algorithm, "an fb.Algorithm")
    run = Run(horizon=horizon, key=key, seeds=1, record=record)
    recorder = run.recorder(np.arange(1, run.horizon + 1 if isinstance(record, Mapping) else 1))
    with jax.ensure_compile_time_eval():  # setup runs on the host, also within `jit`
        runner, _ = bind(algo.name, Configuration(env, algo, {}), run.horizon, recorder)
    return _play(runner, key, run.horizon)


@jax.custom_jvp
def _constant(number: Array) -> Array:
    return number


@_constant.defjvp
def _refuse(*_: Any) -> Any:
    must = "must not be differentiated, since the argmax over arms makes regret piecewise constant in every parameter"
    raise BadType("fb.rollout", must, None, got="a gradient: use differences of runs with one key")


def _play(runner: Runner, key: Array, horizon: int) -> Rollout:
    if isinstance(runner.n_steps, jax.core.Tracer):
        why = "must not be a bound multi-armed algorithm with a traced number of batches, since each is a step"
        raise BadType("algo", why, runner, got="")
    runner = jax.tree.map(lambda leaf: _constant(leaf) if isinstance(leaf, jax.core.Tracer) else leaf, runner)

    def step(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Metrics]:
        world, state, metrics = runner.step(key, *carry, k)
        return (world, state), metrics

    (_, state), metrics = lax.scan(step, runner.init(key), jnp.arange(runner.n_steps))
    if metrics.rounds is None:
        gap = metrics.gap.ravel()[:horizon]
    else:  # stretches of rounds with equal gaps
        gap = jnp.repeat(metrics.gap.ravel(), metrics.rounds.ravel(), total_repeat_length=horizon)
        gap = jnp.where(jnp.arange(horizon) < metrics.rounds.sum(), gap, jnp.nan)  # NaN if rounds are missing
    regret = jnp.cumsum(gap)
    status = lax.reduce(jnp.asarray(metrics.report.status), np.int32(0), lax.bitwise_or, (0,))
    status |= jnp.where(jnp.isfinite(regret[-1]), 0, Status.NOT_FINITE.value)
    found = runner.recorder.named(state) if runner.recorder is not None and isinstance(state, Recording) else ()
    return Rollout(regret, status, {name: array for name, _, array in found})
