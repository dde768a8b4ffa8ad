"""Privacy accounting on the host in float64: exact Gaussian accounting, conversions, several visits.

Every epsilon is exact or an upper bound; approximations are rounded towards a larger epsilon. Arguments out of range
raise a ValueError, and arguments of a wrong type a TypeError.
"""

from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE as EPSILON_RANGE
from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon as gaussian_epsilon
from fedbandit_jax.privacy.accounting.gaussian import gaussian_mu as gaussian_mu
