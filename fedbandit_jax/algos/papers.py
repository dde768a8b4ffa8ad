"""The papers' algorithms under their own names, as compositions of our parts.

Every function returns a recipe, and raises its errors.
"""

from __future__ import annotations

import math
from typing import Any

from fedbandit_jax.algos.clusters.fclub import FCLUB
from fedbandit_jax.algos.federated import AsyncFederated, Federated
from fedbandit_jax.algos.policies.log_det_ucb import LogDetUCB
from fedbandit_jax.algos.policies.phased_elimination import PhasedElimination
from fedbandit_jax.algos.policies.ucb import UCB
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.interfaces import Policy
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism
from fedbandit_jax.schedules import Geometric, LogDet, Schedule

KNOWN, DOUBLING = UCB(confidence="known_noise", regularizer="project"), Geometric(2.0, first=8)


def fed_lin_ucb(
    *, policy: Policy = UCB(), schedule: Schedule | int = 25, learns_in_batch: bool = True, name: str = "FedLinUCB"
) -> Federated:
    """Makes federated LinUCB without privacy: Algorithm 1 of Zhou & Chowdhury (2024) with the identity protocol.

    Args:
        policy, name: as in `Federated`.
        schedule: as in `Federated`; 1 is the super single agent that sees all M users of a round.
        learns_in_batch: True: agents learn inside the batch (Algorithm 1). False: at synchronisations (Algorithm 8).

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
        >>> result = fb.simulate(env, fb.algos.fed_lin_ucb(), horizon=200, key=jax.random.key(0), seeds=4)
        >>> result.communication["rounds"][:, -1]
        array([8, 8, 8, 8])
    """
    validate.text("name", name)
    return Federated(policy=policy, schedule=schedule, learns_in_batch=learns_in_batch, name=name)


def private_fed_lin_ucb(
    privacy: Mechanism | Budget,
    *,
    policy: Policy = UCB(),
    schedule: Schedule | int = 25,
    learns_in_batch: bool = False,
    name: str = "Private-FedLinUCB",
) -> Federated:
    """Makes Private-FedLinUCB: every B rounds the server learns noisy sums of x y and x x' over all silos.

    With a budget alone, every silo has a binary tree over its own batch sums. It adds Gaussian noise to its nodes
    (Algorithm 2). Users trust their silo, but neither the server nor other silos. The privacy unit is one user of one
    round. For adjacency and sensitivity see `fb.privacy.Mechanism`.

    Args:
        privacy: a budget (then a binary tree at every silo, Algorithm 2) or an `fb.privacy.Mechanism`.
        policy, schedule, learns_in_batch, name: as in `Federated`.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(epsilon=1.0, delta=0.1))
        >>> algo.certificate(env.spec, horizon=50).claim
        'certified'
        >>> algo.replace(learns_in_batch=True).certificate(env.spec, 50).claim
        'as_printed'
        >>> algo.replace(release="blt", trust="secagg", epsilon=2.0).privacy.budget.epsilon
        2.0

    Reference: Zhou & Chowdhury (2024), Algorithms 1, 2, 4-8, Theorems 5.1, 5.3, 5.5.
    """
    validate.text("name", name)
    if privacy is None:
        must = "must be an fb.privacy.Mechanism or an fb.privacy.Budget"
        raise BadType("privacy", must, None, got="None; see fed_lin_ucb")
    return Federated(policy=policy, schedule=schedule, privacy=privacy, learns_in_batch=learns_in_batch, name=name)


def fed_ucb(
    privacy: Mechanism | Budget | None = None,
    *,
    policy: Policy = LogDetUCB(),
    schedule: Schedule | int = LogDet(),
    learns_in_batch: bool = True,
    name: str | None = None,
) -> Federated:
    """Makes FedUCB with a controller: LinUCB agents that all synchronise when one of them has learned enough.

    Agent i plays argmax <x, theta_i> + beta_i ||x||_{V_i^-1} on the releases of the last synchronisation and its own
    statistics since. At a synchronisation every silo adds symmetric Gaussian noise to the joint matrix [x y]'[x y] of
    its batch, by a binary tree (PRIVATIZER, Algorithm 2). Its silos send prefix sums, which are post-processing of our
    messages. It shifts the sum by 2 Lambda I. Lambda bounds the noise's norm.
    `Result.communication` counts these sums, but not the one-bit requests.

    Trust is silo-local: each silo adds the noise. Users trust their silo, but neither the controller nor other silos.
    The privacy unit is one user of one round. The l2 sensitivity of the joint matrix is 2 under adjacency "replace" and
    sqrt(1.5) under "zero_out", see `privacy.budget`. As printed (the default) it is not private with any
    noise, because raw statistics decide when it synchronises. With `schedule=fb.schedules.PrivateLogDet()` and
    `learns_in_batch=False` it is certified. Noise and constants are exact by default and several times smaller than
    printed. For the printed ones choose `std="dubey2020"`, `spectral="theory"` and `LogDet(trigger="dp20")`.

    Args:
        privacy: a budget (then PRIVATIZER) or an `fb.privacy.Mechanism`, with `LogDetUCB` of trust "silo_local_matrix"
            or "silo_local"; None: no noise.
        policy: width and spectral bounds, or another policy.
        schedule: one of `fb.schedules`; `LogDet()` has Theorem 1's D and the restated trigger. The budgets of
            communication in Remark 1 are `LogDet("M log T")`, `LogDet("M^1.5")` and `Every(1)`.
        learns_in_batch: True: agents also act on their own raw statistics (as printed). False: on released statistics
            only.
        name: label in results; default "FedUCB", or "Private-FedUCB" with noise.

    Raises:
        ValueError: when bound, also if the environment has one agent or, with noise, feature vectors may be longer than
            1.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> private = fb.algos.fed_ucb(fb.privacy.Budget(1.0, 0.1))
        >>> private.certificate(env.spec, 100).claim
        'none'
        >>> safe = private.replace(schedule=fb.schedules.PrivateLogDet(), learns_in_batch=False)
        >>> safe.certificate(env.spec, 100).claim
        'certified'

    Reference: Dubey & Pentland (2020), Algorithms 1 and 2, Propositions 2 and 4, Theorem 1. Zhou & Chowdhury (2024),
    Algorithm 3, restate it.
    """
    name = name if name is not None else "FedUCB" if privacy is None else "Private-FedUCB"
    privacy = as_mechanism(privacy, trust="silo_local_matrix")
    return Federated(policy=policy, schedule=schedule, privacy=privacy, learns_in_batch=learns_in_batch, name=name)


def async_fed_lin_ucb(growth: float = 2.0, *, policy: Policy = UCB(), name: str = "Async-FedLinUCB") -> AsyncFederated:
    """Makes asynchronous FedLinUCB without privacy: Algorithm 1 of He, Wang, Min & Gu (2022).

    An agent uploads when det(V + U) exceeds `growth` times det V. V is the matrix of its last download, and U the sum
    of x x' over its rounds since. DEVIATION he2022 Alg. 1: the width beta is that of `policy`, in round t and not for T
    rounds.

    Args:
        growth: 1 + alpha > 1. The paper's alpha = M^-2 gives the regret of one agent with all rounds, up to logarithms.
            It takes O(d M^2 ln T) uploads.
        policy, name: as in `AsyncFederated`.
    """
    if not validate.positive("growth", growth) > 1:
        raise BadValue("growth", "must be > 1", growth)
    validate.single("growth", growth)
    validate.text("name", name)
    return AsyncFederated(policy=policy, schedule=LogDet(math.log(growth), "he22"), name=name)


def adac_oful(
    privacy: Mechanism | Budget | None = None,
    *,
    policy: Policy = KNOWN,
    schedule: Schedule | int = DOUBLING,
    name: str = "AdaC-OFUL",
) -> Federated:
    """Makes AdaC-OFUL: optimism in few batches with independent noise, and an estimate from all of them.

    With a budget alone, every silo adds Gaussian noise to its sums of each batch. Users trust their silo, but neither
    the server nor other silos. For adjacency and sensitivity see `fb.privacy.Mechanism`. A user is in one batch, so
    noise for one batch is enough. The estimate after batch k has the noise of k batches, out of O(log T).

    Args:
        privacy: a budget, an `fb.privacy.Mechanism` with release "input_perturbation", or None.
        policy, schedule, name: as in `Federated`; batches double by default, and the width is for the known noise.

    Reference: Azize & Basu (2024), "Concentrated differential privacy for bandits", AdaC-OFUL. DEVIATION azize2024:
    batches end when the number of rounds has doubled, not det V. The paper's contexts are public and V exact. Here x x'
    is released with noise. The width is for the known noise.
    """
    validate.text("name", name)
    return Federated(policy=policy, schedule=schedule, privacy=as_mechanism(privacy, "input_perturbation"), name=name)


def dp_dpe(
    arms: Any,
    privacy: Mechanism | Budget | None = None,
    *,
    failure: float = 0.05,
    exploration_scale: float = 1.0,
    schedule: Schedule | int = DOUBLING,
    name: str = "DP-DPE",
) -> Federated:
    """Makes DP-DPE: elimination in phases that double, each released once and by itself.

    With a budget alone, every silo adds Gaussian noise to its sums of each phase. Users trust their silo, but neither
    the server nor other silos. For adjacency and sensitivity see `fb.privacy.Mechanism`. A user is in one phase, with
    one reward. The paper samples clients for a phase and protects all answers of a client. If features have a constant
    entry, `fb.privacy.Linear(centred=True, gram_scale=0.35)` with release "input_perturbation" has the least noise:
    sums of x x' are released, but not used.

    Args:
        arms, failure, exploration_scale: as in `PhasedElimination`.
        privacy: a budget, an `fb.privacy.Mechanism` with release "input_perturbation", or None.
        schedule: as in `Federated`; a phase is the time between two synchronisations.
        name: label in results.

    Reference: Li, Zhou & Ji (2022), Algorithm 1.
    """
    policy = PhasedElimination(arms=arms, failure=failure, exploration_scale=exploration_scale)
    validate.text("name", name)
    return Federated(policy=policy, schedule=schedule, privacy=as_mechanism(privacy, "input_perturbation"), name=name)


def homo(budget: Budget | None = None, **parameters: Any) -> FCLUB:
    """Makes Homo: FCLUB with one cluster of all users, and an exchange after every round. Takes what `FCLUB` takes.

    Reference: Liu et al. (2022), Section 5.
    """
    return homo_dc(budget, **{"upload": 1.0, "download": 1.0, **parameters})


def homo_dc(budget: Budget | None = None, **parameters: Any) -> FCLUB:
    """Makes Homo-DC: FCLUB with one cluster of all users, and occasional uploads and downloads.

    Takes what `FCLUB` takes. With a budget and `trigger="count"` it is certified.

    Reference: Liu et al. (2022), Section 5.
    """
    return FCLUB(budget, **{"alpha_1": math.inf, "alpha_2": math.inf, **parameters})
