"""The interfaces that all layers share: environment, algorithm, policy and round.

Axis letters: M agents, K arms, d features, T rounds, B rounds in a batch, S synchronisations, L tree levels. In the
multi-armed family a round is one user, and a block has N users. There are n returning users. Rounds t and batches or
synchronisations k are int32 scalars that count from 0, and keys are `jax.random.key`s.
"""

from fedbandit_jax.interfaces.algorithm import Algorithm as Algorithm
from fedbandit_jax.interfaces.algorithm import Metrics as Metrics
from fedbandit_jax.interfaces.algorithm import Recipe as Recipe
from fedbandit_jax.interfaces.algorithm import Report as Report
from fedbandit_jax.interfaces.arms import ArmAlgorithm as ArmAlgorithm
from fedbandit_jax.interfaces.arms import ArmEnvironment as ArmEnvironment
from fedbandit_jax.interfaces.arms import Pulls as Pulls
from fedbandit_jax.interfaces.arrivals import ArrivalAlgorithm as ArrivalAlgorithm
from fedbandit_jax.interfaces.arrivals import ArrivalEnvironment as ArrivalEnvironment
from fedbandit_jax.interfaces.environment import Environment as Environment
from fedbandit_jax.interfaces.environment import Feedback as Feedback
from fedbandit_jax.interfaces.environment import Round as Round
from fedbandit_jax.interfaces.environment import Spec as Spec
from fedbandit_jax.interfaces.policy import NoiseLaw as NoiseLaw
from fedbandit_jax.interfaces.policy import Policy as Policy
from fedbandit_jax.interfaces.policy import Released as Released
from fedbandit_jax.privacy.certification import certificate_of as certificate_of
from fedbandit_jax.privacy.certification import certify as certify
from fedbandit_jax.status import Status as Status
