"""The trust models by name: the party that adds the noise, how much a budget needs, and the proof.

`TRUST` maps every name to its class, and `Trust` documents the interface.
"""

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.compatibility import Tags, tagged
from fedbandit_jax.privacy.tails import check_delta
from fedbandit_jax.privacy.trust.gaussian import BoundGaussian as BoundGaussian
from fedbandit_jax.privacy.trust.gaussian import Central as Central
from fedbandit_jax.privacy.trust.gaussian import GaussianTrust as GaussianTrust
from fedbandit_jax.privacy.trust.gaussian import Local as Local
from fedbandit_jax.privacy.trust.gaussian import SiloLocal as SiloLocal
from fedbandit_jax.privacy.trust.gaussian import SiloLocalMatrix as SiloLocalMatrix
from fedbandit_jax.privacy.trust.model import Proof as Proof
from fedbandit_jax.privacy.trust.model import Trust as Trust
from fedbandit_jax.privacy.trust.requirement import Requirement as Requirement
from fedbandit_jax.privacy.trust.secagg import SecAgg as SecAgg
from fedbandit_jax.privacy.trust.shuffle import Shuffled as Shuffled
from fedbandit_jax.privacy.trust.vector_sum import VectorSum as VectorSum

TRUST: dict[str, type[Trust]] = {
    "silo_local": SiloLocal,
    "silo_local_matrix": SiloLocalMatrix,
    "shuffle_amplified": Shuffled,
    "shuffle_vector_sum": VectorSum,
    "secagg": SecAgg,
    "central": Central,
    "local": Local,
}
Model = str | type[Trust] | GaussianTrust  # a name, a class, or data


def find(trust: Model) -> type[Trust]:
    """Returns the class of a trust model, given as a name, as data or as the class itself.

    Raises:
        TypeError: if it is none of these, for instance a subclass of `GaussianTrust`.
        ValueError: if no model has that name.
    """
    if type(trust) is GaussianTrust:
        return BoundGaussian
    if isinstance(trust, type) and issubclass(trust, Trust):
        return trust
    if not isinstance(trust, str):
        raise BadType("trust", "must be a name or an fb.privacy.GaussianTrust, not a subclass", trust)
    return TRUST[validate.one_of("trust", trust, TRUST)]


def tags(trust: Model, release: str | releases.Make) -> Tags:
    """Returns the tags of a trust model and a release for `privacy.compatibility`."""
    return tagged("trust", trust, find(trust).tags()) | tagged("release", release, releases.tags(release))


def calibrate(need: Requirement, trust: Model, std: float | None) -> Trust:
    """Returns the bound model for `need`, with noise of this `std`; None: the least that gives the budget."""
    kind = find(trust)
    data = isinstance(trust, GaussianTrust)
    bound = GaussianTrust.calibrate(trust, need, std) if data else kind.calibrate(need, std)
    check_delta(need.budget.delta, bound.missing(need))
    return bound
