"""Cases of user-defined algorithms without a proof, against their author's claim."""

from __future__ import annotations

from fedbandit_jax.audits.case import Case
from fedbandit_jax.audits.linear import ROUNDS
from fedbandit_jax.audits.transcripts import neighbours, spec_of, transcript
from fedbandit_jax.core import validate
from fedbandit_jax.interfaces import Algorithm
from fedbandit_jax.privacy.budget import Budget


def claimed(
    algo: Algorithm,
    budget: Budget,
    *,
    n_agents: int = 1,
    horizon: int = ROUNDS,
    visits: int = 1,
    gaussian: bool = False,
    name: str | None = None,
) -> Case:
    """Builds a case of a linear algorithm against a claim of its author.

    It runs on the data of `linear`: M silos whose users have two arms and d = 2. One user differs in `visits` rounds,
    also with features and rewards out of range. The adversary sees `algo.view` at every synchronisation, their rounds,
    and the arms of all other users. So `view` must hold everything sent to parties that the author does not trust; what
    it omits is not audited.

    Args:
        algo: an `fb.Algorithm`, user-defined or not, certified or not; `bind` returns what runs.
        budget: the claim: epsilon, delta and the adjacency.
        n_agents: number M of silos.
        horizon: T, whole batches.
        visits: rounds of one user, all at one silo.
        gaussian: promise that the view is Gaussian, as in `fb.audits.audit`, or made of Gaussian parts.
        name: name of the case; default: the algorithm's.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it and its value.
    """
    validate.instance("algo", algo, Algorithm, "an fb.Algorithm")
    validate.instance("budget", budget, Budget, "an fb.privacy.Budget")
    n_agents = validate.integer("n_agents", n_agents, at_least=1)
    visits = validate.integer("visits", visits, at_least=1)
    horizon = validate.integer("horizon", horizon, at_least=visits)
    gaussian = validate.boolean("gaussian", gaussian)
    spec = spec_of(n_agents)
    return Case.of(
        neighbours(horizon, n_agents, budget.adjacency, visits),
        name=str(algo.name) if name is None else name,
        mechanism=transcript(algo.bind(spec, horizon), spec, horizon),
        epsilon=budget.epsilon,
        delta=budget.delta,
        gaussian=gaussian,
    )
