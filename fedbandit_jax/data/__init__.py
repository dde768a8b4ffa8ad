"""Real data: files -> checked NumPy arrays. scikit-learn (extra `data`) is imported when a loader runs."""

from fedbandit_jax.data.classification import CLASSIFICATION as CLASSIFICATION
from fedbandit_jax.data.classification import classification as classification
from fedbandit_jax.data.community import Community as Community
from fedbandit_jax.data.lasso import lasso as lasso
from fedbandit_jax.data.movielens import movielens as movielens
from fedbandit_jax.data.mslr import BODY_FEATURES as BODY_FEATURES
from fedbandit_jax.data.mslr import TITLE_FEATURES as TITLE_FEATURES
from fedbandit_jax.data.mslr import mslr as mslr
from fedbandit_jax.data.table import Table as Table
