"""Classification data as a linear contextual bandit: one sample is one query, one class is one arm."""

from __future__ import annotations

import math

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.datasets import Queries, lasso, scaled

CLASSIFICATION = {"digits": 5, "breast_cancer": 10}  # data set -> default number p of principal components


def classification(name: str, *, components: int | None = None) -> Queries:
    """Loads the digits (K = 10, d = 51) or breast_cancer (K = 2, d = 21) data of scikit-learn as a linear bandit.

    A sample's context z in R^p is its vector of the p leading principal components of the standardised data, divided by
    its norm. Arm a has the feature x_a = (e_a kron z, 1) / sqrt 2, so ||x_a|| = 1 and d = K p + 1.

    theta is the lasso for the label, 1[a is the sample's class], given x_a, mapped to means in [0, 1] by `into_unit`.
    The best arm is the class that the linear model prefers, not always the true one.

    Samples keep scikit-learn's order, so the contiguous blocks of agents in `replay` may have different laws.

    Args:
        name: "digits" (1797 samples) or "breast_cancer" (569 samples).
        components: number p >= 1 of principal components; by default 5 for digits, 10 for breast_cancer.

    Returns:
        A query for every sample, with its arms in the order of the classes.

    Raises:
        ImportError: scikit-learn is missing.

    Example:
        >>> import fedbandit_jax as fb
        >>> table = fb.data.classification("breast_cancer")
        >>> table
        Queries('breast_cancer (10 components)', 1138 rows, 569 queries, dim 21)
        >>> env = fb.envs.replay(**table.arguments(), n_agents=10, rewards="bernoulli")
        >>> env.spec.n_arms, env.spec.max_norm, env.spec.rewards_in_unit
        (2, 1.0, True)

    Reference: Bietti, Agarwal & Langford (2021), "A contextual bandit bake-off".
    """
    name = validate.one_of("name", name, CLASSIFICATION)
    p = validate.integer("components", CLASSIFICATION[name] if components is None else components, at_least=1)
    data = getattr(require("sklearn.datasets", "data"), f"load_{name}")()
    if p > data.data.shape[1]:
        raise BadValue("components", f"must be <= {data.data.shape[1]}, the columns of {name}", p)
    standardised = require("sklearn.preprocessing", "data").StandardScaler().fit_transform(data.data)
    z = require("sklearn.decomposition", "data").PCA(p, svd_solver="full").fit_transform(standardised)
    z /= np.linalg.norm(z, axis=1, keepdims=True)

    n, k = len(z), len(data.target_names)
    features = np.zeros((n, k, k * p + 1), np.float32)
    for a in range(k):
        features[:, a, a * p : (a + 1) * p] = z
    features[:, :, -1] = 1
    features = features.reshape(n * k, -1) / np.float32(math.sqrt(2))
    labels = (data.target[:, None] == np.arange(k)).reshape(-1)
    theta = scaled(features, lasso(features, labels), math.sqrt(0.5))
    return Queries(features, np.full(n, k), theta, f"{name} ({p} components)")
