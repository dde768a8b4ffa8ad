"""The privacy side of a run: budgets, mechanisms (a release through a trust model), accounting and certificates.

A `Budget` states the privacy asked for, a `Mechanism` provides it, and a `Certificate` states what a run proves.
`calibrate` translates between noise and epsilon.
"""

from fedbandit_jax.certificate import Certificate as Certificate
from fedbandit_jax.privacy.accounting import gaussian_epsilon as gaussian_epsilon
from fedbandit_jax.privacy.accounting import gaussian_mu as gaussian_mu
from fedbandit_jax.privacy.accounting.conversions import rdp_epsilon as rdp_epsilon
from fedbandit_jax.privacy.accounting.conversions import zcdp_epsilon as zcdp_epsilon
from fedbandit_jax.privacy.budget import Budget as Budget
from fedbandit_jax.privacy.byzantine import AGGREGATES as AGGREGATES
from fedbandit_jax.privacy.byzantine import Liars as Liars
from fedbandit_jax.privacy.calibration import Calibration as Calibration
from fedbandit_jax.privacy.calibration import calibrate as calibrate
from fedbandit_jax.privacy.mechanism import Mechanism as Mechanism
from fedbandit_jax.privacy.printed import PRINTED as PRINTED
from fedbandit_jax.privacy.releases import BISR as BISR
from fedbandit_jax.privacy.releases import RELEASES as RELEASES
from fedbandit_jax.privacy.releases import BandMF as BandMF
from fedbandit_jax.privacy.releases import Decaying as Decaying
from fedbandit_jax.privacy.releases import Discounted as Discounted
from fedbandit_jax.privacy.releases import Release as Release
from fedbandit_jax.privacy.statistic import Linear as Linear
from fedbandit_jax.privacy.statistic import Logistic as Logistic
from fedbandit_jax.privacy.statistic import Statistic as Statistic
from fedbandit_jax.privacy.trust import TRUST as TRUST
from fedbandit_jax.privacy.trust import GaussianTrust as GaussianTrust
from fedbandit_jax.privacy.trust import Trust as Trust
from fedbandit_jax.privacy.users import Users as Users
