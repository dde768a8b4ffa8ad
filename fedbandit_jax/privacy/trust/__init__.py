"""The trust models by name: who adds the noise, its calibration to a budget, and its proof.

`TRUST` maps every name to its class, and `Trust` documents the interface.
"""

from collections.abc import Callable

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy import releases
from fedbandit_jax.privacy.trust.ask import Ask as Ask
from fedbandit_jax.privacy.trust.gaussian import Central as Central
from fedbandit_jax.privacy.trust.gaussian import Local as Local
from fedbandit_jax.privacy.trust.gaussian import SiloLocal as SiloLocal
from fedbandit_jax.privacy.trust.gaussian import SiloLocalMatrix as SiloLocalMatrix
from fedbandit_jax.privacy.trust.model import METHODS as METHODS
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
    """The class of a trust model, given as a name, as data or as the class itself.

    Raises:
        TypeError: if it is none of these.
        ValueError: if there is no model of that name.
    """
    if isinstance(trust, GaussianTrust):
        return BoundGaussian
    if isinstance(trust, type) and issubclass(trust, Trust):
        return trust
    if not isinstance(trust, str):
        raise BadType("trust", "must be a name or an fb.privacy.GaussianTrust", trust)
    return TRUST[validate.one_of("trust", trust, TRUST)]


def check(
    trust: str | type[Trust] | GaussianTrust, release: str | Callable[[int], releases.Release], method: str
) -> None:
    """Raises an error if a trust model, a release and a calibration do not go together.

    Args:
        trust: a key of `TRUST`, a `GaussianTrust`, or a `Trust` class.
        release: a key of `fb.privacy.RELEASES`, or a callable that makes a `Release`.
        method: a calibration, one of `METHODS`.

    Raises:
        ValueError: naming the argument that does not fit, and its value.

    Example:
        >>> check("secagg", "prefix_tree", "tight")
        Traceback (most recent call last):
        fedbandit_jax.BadValue: trust must be 'silo_local' or 'silo_local_matrix' with release='prefix_tree', \
whose silos send private prefix sums, got 'secagg'
    """
    model = find(trust)
    validate.one_of("calibration", method, METHODS)
    if getattr(releases.find(release), "prefix_at_silo", False) and not model.per_silo:
        able = " or ".join(repr(name) for name, model in TRUST.items() if model.per_silo)
        why = f"must be {able} with release={release!r}, whose silos send private prefix sums"
        raise BadValue("trust", why, trust, others=("release",))
    if model.releases is not None and releases.find(release) not in model.releases:
        choices = " or ".join(repr(name) for name, made in releases.RELEASES.items() if made in model.releases)
        raise BadValue("release", f"must be {choices} with trust={trust!r} ({model.why})", release, others=("trust",))
    if method not in model.methods:
        methods = " or ".join(map(repr, model.methods))
        raise BadValue("calibration", f"must be {methods} with trust={trust!r}", method, others=("trust",))
    if method != "tight" and releases.find(release) not in (releases.Tree, releases.PrefixTree):
        raise BadValue(
            "release",
            f"must be 'tree' or 'prefix_tree' with calibration={method!r} (the paper's)",
            release,
            others=("calibration",),
        )


def check_schedule(trust: str | type[Trust] | GaussianTrust, fixed: bool = False) -> None:
    """Raises a ValueError if the proof of a trust model does not cover batches whose sizes differ.

    Args:
        trust: a key of `TRUST`, a `GaussianTrust`, or a `Trust` class.
        fixed: whether the sizes are fixed in advance, as those of `fb.schedules.Geometric` are.

    >>> check_schedule("secagg", fixed=True)
    >>> check_schedule("secagg")
    Traceback (most recent call last):
    fedbandit_jax.BadValue: trust must be 'silo_local' or 'silo_local_matrix' or 'central' with a schedule whose \
batches are not fixed in advance, got 'secagg'
    """
    covered = ("fixed", "any") if fixed else ("any",)
    if find(trust).batches not in covered:
        asked = "that is not fb.schedules.Every" if fixed else "whose batches are not fixed in advance"
        able = " or ".join(repr(name) for name, model in TRUST.items() if model.batches in covered)
        raise BadValue("trust", f"must be {able} with a schedule {asked}", trust)
