"""Vectorised, accelerator-backed simulation of differentially private federated bandits.

>>> import jax, fedbandit_jax as fb
>>> env = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
>>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(epsilon=1.0, delta=1e-6))
>>> result = fb.simulate(env, algo, horizon=200, key=jax.random.key(0), seeds=4)
>>> result.regret.shape  # (seeds, rounds): cumulative, summed over the 20 agents
(4, 200)

An invalid argument raises `BadValue` (a `ValueError`) or `BadType` (a `TypeError`) with its name and value. Names are
imported on first use, so reading saved results needs no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbandit_jax import algos as algos
    from fedbandit_jax import audits as audits
    from fedbandit_jax import benchmark as benchmark
    from fedbandit_jax import data as data
    from fedbandit_jax import envs as envs
    from fedbandit_jax import linalg as linalg
    from fedbandit_jax import networks as networks
    from fedbandit_jax import planning as planning
    from fedbandit_jax import privacy as privacy
    from fedbandit_jax import schedules as schedules
    from fedbandit_jax.core.struct import pytree as pytree
    from fedbandit_jax.core.struct import static as static
    from fedbandit_jax.core.validate import BadArgument as BadArgument
    from fedbandit_jax.core.validate import BadType as BadType
    from fedbandit_jax.core.validate import BadValue as BadValue
    from fedbandit_jax.engine import record as record
    from fedbandit_jax.engine.simulation import SimulationError as SimulationError
    from fedbandit_jax.engine.simulation import rollout as rollout
    from fedbandit_jax.engine.simulation import simulate as simulate
    from fedbandit_jax.engine.simulation import sweep as sweep
    from fedbandit_jax.interfaces import Algorithm as Algorithm
    from fedbandit_jax.interfaces import ArmAlgorithm as ArmAlgorithm
    from fedbandit_jax.interfaces import ArmEnvironment as ArmEnvironment
    from fedbandit_jax.interfaces import ArrivalAlgorithm as ArrivalAlgorithm
    from fedbandit_jax.interfaces import ArrivalEnvironment as ArrivalEnvironment
    from fedbandit_jax.interfaces import Environment as Environment
    from fedbandit_jax.interfaces import Feedback as Feedback
    from fedbandit_jax.interfaces import NoiseLaw as NoiseLaw
    from fedbandit_jax.interfaces import Policy as Policy
    from fedbandit_jax.interfaces import Pulls as Pulls
    from fedbandit_jax.interfaces import Recipe as Recipe
    from fedbandit_jax.interfaces import Released as Released
    from fedbandit_jax.interfaces import Report as Report
    from fedbandit_jax.interfaces import Round as Round
    from fedbandit_jax.interfaces import Spec as Spec
    from fedbandit_jax.interfaces import Status as Status
    from fedbandit_jax.planning.evaluation import off_policy as off_policy
    from fedbandit_jax.planning.recommend import plan as plan
    from fedbandit_jax.report import plotting as plotting
    from fedbandit_jax.report.best_arm import BestArm as BestArm
    from fedbandit_jax.report.best_arm import best_arm as best_arm
    from fedbandit_jax.report.result import Result as Result
    from fedbandit_jax.report.result import concat as concat

__version__ = "0.1.0"

_ROOMS = "algos", "audits", "benchmark", "data", "envs", "linalg", "networks", "planning", "privacy", "schedules"
_MODULES = {name: name for name in _ROOMS}
_MODULES |= {"plotting": "report.plotting", "record": "engine.record"}
_HOME = {
    "core.struct": ("pytree", "static"),
    "core.validate": ("BadArgument", "BadType", "BadValue"),
    "interfaces": (
        *("Algorithm", "ArmAlgorithm", "ArmEnvironment", "ArrivalAlgorithm", "ArrivalEnvironment", "Environment"),
        *("Feedback", "NoiseLaw", "Policy", "Pulls", "Recipe", "Released", "Report", "Round", "Spec"),
        "Status",
    ),
    "report.best_arm": ("BestArm", "best_arm"),
    "report.result": ("Result", "concat"),
    "engine.simulation": ("SimulationError", "rollout", "simulate", "sweep"),
    "planning.evaluation": ("off_policy",),
    "planning.recommend": ("plan",),
}
_NAMES = {name: module for module, names in _HOME.items() for name in names}
__all__ = [*_MODULES, *_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fedbandit_jax.{_MODULES[name]}")
    if name in _NAMES:
        return getattr(import_module(f"fedbandit_jax.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'fedbandit_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
