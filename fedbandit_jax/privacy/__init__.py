"""Privacy: budgets, exact accounting, continual-release mechanisms, certificates."""

from fedbandit_jax.certificate import Certificate as Certificate
from fedbandit_jax.privacy.accounting import gaussian_epsilon as gaussian_epsilon
from fedbandit_jax.privacy.accounting import gaussian_mu as gaussian_mu
from fedbandit_jax.privacy.budget import Budget as Budget
from fedbandit_jax.privacy.calibration import Calibration as Calibration
from fedbandit_jax.privacy.calibration import calibrate as calibrate
from fedbandit_jax.privacy.releases import RELEASES as RELEASES
