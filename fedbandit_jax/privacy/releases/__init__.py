"""The releases by name: mechanisms that publish all prefix sums of a stream of batches, see `Release`."""

from collections.abc import Callable

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.releases.banded import BISR as BISR
from fedbandit_jax.privacy.releases.banded import BandMF as BandMF
from fedbandit_jax.privacy.releases.blt import Blt as Blt
from fedbandit_jax.privacy.releases.decaying import Decaying as Decaying
from fedbandit_jax.privacy.releases.forgetting import Discounted as Discounted
from fedbandit_jax.privacy.releases.forgetting import Window as Window
from fedbandit_jax.privacy.releases.matrices import explicit as explicit
from fedbandit_jax.privacy.releases.release import Release as Release
from fedbandit_jax.privacy.releases.toeplitz import InputPerturbation as InputPerturbation
from fedbandit_jax.privacy.releases.toeplitz import SqrtToeplitz as SqrtToeplitz
from fedbandit_jax.privacy.releases.trees import Tree as Tree

RELEASES: dict[str, Callable[[int], Release]] = {
    "tree": Tree,
    "sqrt_toeplitz": SqrtToeplitz,
    "blt": Blt,
    "input_perturbation": InputPerturbation,
}


def make(release: str | Callable[[int], Release], n_syncs: int) -> Release:
    """Returns the release of a name or class for S synchronisations. A user-defined one becomes its matrices.

    Raises:
        TypeError: if the callable does not make a `Release`.
        ValueError: if the name is unknown, S does not fit, or a user-defined release does not make prefix sums.

    Example:
        >>> for name in RELEASES:  # noise at equal privacy: largest prefix variance times squared sensitivity
        ...     release = make(name, 400)
        ...     print(f"{name:18} {release.prefix_variance().max() * release.sensitivity_sq():6.2f}")
        tree                72.00
        sqrt_toeplitz        8.84
        blt                  8.85
        input_perturbation 400.00
    """
    made = find(release)(n_syncs)
    if not isinstance(made, Release):
        raise BadType("release", "must make an fb.privacy.Release", made)
    if made.n_syncs != n_syncs:
        raise BadValue("release", f"must be for n_syncs = {n_syncs} synchronisations", made)
    return made if struct.is_sealed(made) else explicit(made)


def find(release: str | Callable[[int], Release]) -> Callable[[int], Release]:
    """Returns the class of a name; a class is returned as it is."""
    if callable(release):
        return release
    if not isinstance(release, str):
        got = validate.shown(release)
        raise BadType("release", "must be a name or a class (or a function of S that makes a Release)", got, got=got)
    return RELEASES[validate.one_of("release", release, RELEASES)]


def tags(release: str | Callable[[int], Release]) -> dict[str, bool]:
    """Returns the tags of a release for `privacy.compatibility`, by its class."""
    kind = find(release)
    return {
        "release that is no tree": kind is not Tree,
        "release of sums over batches": kind is not InputPerturbation,
    }
