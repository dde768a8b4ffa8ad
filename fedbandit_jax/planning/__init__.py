"""Recommendations for private federated bandits, and off-policy values of learned policies."""

from fedbandit_jax.planning.candidate import Candidate as Candidate
from fedbandit_jax.planning.demands import PARTIES as PARTIES
from fedbandit_jax.planning.evaluation import Interval as Interval
from fedbandit_jax.planning.evaluation import Value as Value
from fedbandit_jax.planning.evaluation import Values as Values
from fedbandit_jax.planning.evaluation import off_policy as off_policy
from fedbandit_jax.planning.forecast import Forecast as Forecast
from fedbandit_jax.planning.recommend import plan as plan
from fedbandit_jax.planning.recommendation import Recommendation as Recommendation
