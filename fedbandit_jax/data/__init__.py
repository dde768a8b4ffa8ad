"""Loaders that turn files of real data into checked NumPy arrays, and `table`, which makes an environment of any log.

Loaders that need scikit-learn (the extra `data`) import it when they are called.
"""

from fedbandit_jax.data.classification import CLASSIFICATION as CLASSIFICATION
from fedbandit_jax.data.classification import classification as classification
from fedbandit_jax.data.datasets import Community as Community
from fedbandit_jax.data.datasets import Table as Table
from fedbandit_jax.data.datasets import into_unit as into_unit
from fedbandit_jax.data.datasets import lasso as lasso
from fedbandit_jax.data.fit import Fit as Fit
from fedbandit_jax.data.movielens import movielens as movielens
from fedbandit_jax.data.mslr import BODY_FEATURES as BODY_FEATURES
from fedbandit_jax.data.mslr import TITLE_FEATURES as TITLE_FEATURES
from fedbandit_jax.data.mslr import mslr as mslr
from fedbandit_jax.data.mslr import mslr_arms as mslr_arms
from fedbandit_jax.data.table import table as table
