"""Runners, which the driver runs: an environment with a bound algorithm, one class for each pattern of arrivals."""

from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.engine.record import Recorder
from fedbandit_jax.engine.runners.batched_arms import MAX_USERS
from fedbandit_jax.engine.runners.batched_arms import BatchedArms as BatchedArms
from fedbandit_jax.engine.runners.runner import Runner as Runner
from fedbandit_jax.engine.runners.runner import signature as signature
from fedbandit_jax.engine.runners.sequential import MAX_ARRIVALS
from fedbandit_jax.engine.runners.sequential import Sequential as Sequential
from fedbandit_jax.engine.runners.synchronous import Synchronous as Synchronous
from fedbandit_jax.interfaces import Algorithm, ArmAlgorithm, ArrivalAlgorithm, Environment


def make_runner(env: Environment, algo: Algorithm, horizon: int, recorder: Recorder | None = None) -> Runner:
    """Makes the runner that runs a bound algorithm in an environment.

    Raises:
        TypeError: a multi-armed algorithm meets another environment, or a clustering algorithm lacks identified users.
        ValueError: a multi-armed environment has several agents, the users exceed the counters, or the environment
            `accepts` rounds by data although the spec does not declare `rejects`.
    """
    if callable(getattr(env, "accepts", None)) and not getattr(algo, "spec", env.spec).rejects:
        raise BadValue("env", "must have spec.rejects if it has `accepts`: data decide which rows count", env)
    if isinstance(algo, ArrivalAlgorithm):
        if env.spec.n_users < 1 or not callable(getattr(env, "clusters", None)):
            lacks = "clusters(world)" if env.spec.n_users else "identified users (spec.n_users)"
            got = f"{type(env).__name__} without {lacks}"
            raise BadType("env", "must be like fb.envs.clustered(...)", env, got=got)
        if horizon > MAX_ARRIVALS:
            raise BadValue("horizon", f"must be at most {MAX_ARRIVALS:,} arrivals", horizon, got=f"{horizon:,}")
        return Sequential(env=env, algo=algo, horizon=horizon, recorder=recorder)  # pyright: ignore[reportArgumentType]
    if not isinstance(algo, ArmAlgorithm):
        return Synchronous(env=env, algo=algo, horizon=horizon, recorder=recorder)
    if not all(callable(getattr(env, name, None)) for name in ("answers", "means")):
        raise BadType("env", "must be multi-armed, such as fb.envs.arms(...)", env, got=type(env).__name__)
    if env.spec.n_agents != 1:
        raise BadValue("env", "must have one agent, which serves one user a round", env.spec.n_agents)
    if horizon > MAX_USERS:
        raise BadValue("horizon", f"must be at most {MAX_USERS:,} users", horizon, got=f"{horizon:,}")
    return BatchedArms(env=env, algo=algo, horizon=horizon, recorder=recorder)  # pyright: ignore[reportArgumentType]
