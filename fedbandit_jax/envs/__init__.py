"""Environments, which decide arrivals, offers and rewards.

Constructors raise a ValueError or TypeError that names a wrong argument and its value.
"""

from fedbandit_jax.envs.arms import ContaminatedArms as ContaminatedArms
from fedbandit_jax.envs.arms import ParetoArms as ParetoArms
from fedbandit_jax.envs.arms import RandomArms as RandomArms
from fedbandit_jax.envs.arms import arms as arms
from fedbandit_jax.envs.arms import contaminate as contaminate
from fedbandit_jax.envs.clustered import Clustered as Clustered
from fedbandit_jax.envs.clustered import UserTable as UserTable
from fedbandit_jax.envs.clustered import clustered as clustered
from fedbandit_jax.envs.clustered import community as community
from fedbandit_jax.envs.drift import Drift as Drift
from fedbandit_jax.envs.drift import drift as drift
from fedbandit_jax.envs.faults import Delay as Delay
from fedbandit_jax.envs.faults import Dropout as Dropout
from fedbandit_jax.envs.faults import delay as delay
from fedbandit_jax.envs.faults import dropout as dropout
from fedbandit_jax.envs.logged import Logged as Logged
from fedbandit_jax.envs.logged import Rejection as Rejection
from fedbandit_jax.envs.logged import rejection as rejection
from fedbandit_jax.envs.replay import Replay as Replay
from fedbandit_jax.envs.replay import Script as Script
from fedbandit_jax.envs.replay import replay as replay
from fedbandit_jax.envs.replay import script as script
from fedbandit_jax.envs.returning import Returning as Returning
from fedbandit_jax.envs.returning import ReturningArms as ReturningArms
from fedbandit_jax.envs.returning import returning as returning
from fedbandit_jax.envs.synthetic import Gap as Gap
from fedbandit_jax.envs.synthetic import Sphere as Sphere
from fedbandit_jax.envs.synthetic import gap as gap
from fedbandit_jax.envs.synthetic import sphere as sphere

# Name -> wrapper of an environment, its first argument.
WRAPPERS = {wrap.__name__: wrap for wrap in (returning, dropout, delay, drift, contaminate, rejection)}

# Name -> constructor, without `script`, which only repeats its input.
ENVIRONMENTS = {make.__name__: make for make in (sphere, gap, replay, arms, clustered, community)}
