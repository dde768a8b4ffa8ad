"""Recommends how to run a private federated bandit, from short simulations of what meets the demands."""

from fedbandit_jax.planning.candidates import PARTIES as PARTIES
from fedbandit_jax.planning.candidates import Candidate as Candidate
from fedbandit_jax.planning.forecast import Forecast as Forecast
from fedbandit_jax.planning.recommend import Recommendation as Recommendation
from fedbandit_jax.planning.recommend import plan as plan
