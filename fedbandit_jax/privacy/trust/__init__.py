"""The trust models by name: who adds the noise, how much a budget needs, and the proof.

`TRUST` maps every name to its class, and `Trust` documents the interface.
"""

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType
from fedbandit_jax.privacy.trust.ask import Ask as Ask
from fedbandit_jax.privacy.trust.gaussian import Central as Central
from fedbandit_jax.privacy.trust.gaussian import Local as Local
from fedbandit_jax.privacy.trust.gaussian import SiloLocal as SiloLocal
from fedbandit_jax.privacy.trust.gaussian import SiloLocalMatrix as SiloLocalMatrix
from fedbandit_jax.privacy.trust.model import Proof as Proof
from fedbandit_jax.privacy.trust.model import Trust as Trust
from fedbandit_jax.privacy.trust.own import BoundGaussian as BoundGaussian
from fedbandit_jax.privacy.trust.own import GaussianTrust as GaussianTrust
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


def find(trust: str | type[Trust] | GaussianTrust) -> type[Trust]:
    """Returns the class of a trust model, given as a name, as data or as the class itself.

    Raises:
        TypeError: if it is none of these.
        ValueError: if no model has that name.
    """
    if isinstance(trust, GaussianTrust):
        return BoundGaussian
    if isinstance(trust, type) and issubclass(trust, Trust):
        return trust
    if not isinstance(trust, str):
        raise BadType("trust", "must be a name or an fb.privacy.GaussianTrust", trust)
    return TRUST[validate.one_of("trust", trust, TRUST)]
