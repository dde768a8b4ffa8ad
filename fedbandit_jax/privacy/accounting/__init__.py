"""What noise proves, on the host in float64: exact Gaussian accounting, events and their composition, conversions.

Nothing here is optimistic: what is approximated is rounded towards more epsilon.
"""

from fedbandit_jax.privacy.accounting.gaussian import EPSILON_RANGE as EPSILON_RANGE
from fedbandit_jax.privacy.accounting.gaussian import gaussian_epsilon as gaussian_epsilon
from fedbandit_jax.privacy.accounting.gaussian import gaussian_mu as gaussian_mu
