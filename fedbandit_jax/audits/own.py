"""Cases of a loop of one's own, of which nothing is proved, against its author's claim."""

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
    """Builds a case of all that a linear algorithm shows, against a claim that its author makes in words.

    It is run on the data of `linear`: M silos whose users have two arms and d = 2, of whom one differs in `visits`
    rounds, features and rewards out of range among them. An adversary sees what `algo.view` says, whenever silos
    synchronise, when that is, and the arms of all users but hers. So `view` must hold all that is sent to whom the
    author does not trust: what it leaves out is not audited.

    Args:
        algo: an `fb.Algorithm`, of one's own or not, certified or not; `bind` is asked for what runs.
        budget: the claim: epsilon, delta and the adjacency.
        n_agents: M.
        horizon: T, whole batches.
        visits: in how many rounds one user comes, all at one silo.
        gaussian: promise that the view is Gaussian, as `fb.audits.audit` takes it, or is made of what is.
        name: name of the case; default: that of the algorithm.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it and its value.
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
