"""AdaC-OFUL of Azize & Basu (2024): optimism on sums of batches that double, each of which is released once."""

from __future__ import annotations

from fedbandit_jax.algos.linear.federated import Federated
from fedbandit_jax.algos.linear.ucb import UCB
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Policy
from fedbandit_jax.privacy.budget import Budget
from fedbandit_jax.privacy.mechanism import Mechanism, as_mechanism
from fedbandit_jax.schedules import Geometric, Schedule

KNOWN, DOUBLING = UCB(confidence="known_noise", regularizer="project"), Geometric(2.0, first=8)


def adac_oful(
    privacy: Mechanism | Budget | None = None,
    *,
    exploration: UCB = KNOWN,
    schedule: Schedule | int = DOUBLING,
    name: str = "AdaC-OFUL",
) -> Federated:
    """Makes AdaC-OFUL: optimism in few batches, each with noise of its own, of which the estimate adds up all.

    With a budget alone, every silo adds Gaussian noise to its sums of each batch. A user trusts her silo, but neither
    the server nor other silos; she is in one batch. Under adjacency "replace" she moves that batch's sums by at most
    sqrt(4.5) in joint l2 norm of (x y, x x'), under "add_remove" by sqrt(2). No prefix sum is released again, so that
    noise of the size that one batch needs is enough; the estimate after batch k has that of k batches, and there are
    O(log T).

    Args:
        privacy: a budget, an `fb.privacy.Mechanism`, of which the release should be "input_perturbation", or None.
        exploration: regulariser and confidence width.
        schedule: as in `Federated`.
        name: label in results.

    Returns:
        The recipe, a `Federated`.

    Raises:
        ValueError, TypeError: as `Federated`.

    Example:
        >>> import fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.adac_oful(fb.privacy.Budget(1.0, 0.1))
        >>> certificate = algo.certificate(env.spec, horizon=100)
        >>> certificate.claim, certificate.releases, certificate.releases_per_user
        ('certified', 4, 1.0)

    Reference: Azize & Basu (2024), "Concentrated differential privacy for bandits", AdaC-OFUL.
    """
    # DEVIATION azize2024: batches end when the number of rounds has doubled, where the paper looks at det V; its
    # contexts are public and V exact, where x x' is released with noise here; and the width is that of the known noise.
    policy = validate.instance("exploration", exploration, Policy, "an fb.algos.UCB")
    validate.text("name", name)
    return Federated(policy=policy, schedule=schedule, privacy=as_mechanism(privacy, "input_perturbation"), name=name)
