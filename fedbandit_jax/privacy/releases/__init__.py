"""The releases by name: mechanisms that publish all prefix sums of a stream of batches, see `Release`."""

from collections.abc import Callable
from typing import Any

from fedbandit_jax.core import struct, validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.privacy.releases.banded import BISR as BISR
from fedbandit_jax.privacy.releases.banded import BandMF as BandMF
from fedbandit_jax.privacy.releases.blt import Blt as Blt
from fedbandit_jax.privacy.releases.decaying import Decaying as Decaying
from fedbandit_jax.privacy.releases.forgetting import Discounted as Discounted
from fedbandit_jax.privacy.releases.matrices import explicit as explicit
from fedbandit_jax.privacy.releases.release import Release as Release
from fedbandit_jax.privacy.releases.toeplitz import InputPerturbation as InputPerturbation
from fedbandit_jax.privacy.releases.toeplitz import SqrtToeplitz as SqrtToeplitz
from fedbandit_jax.privacy.releases.trees import Tree as Tree

Make = Callable[[int], Any]  # a class of releases, or a function from S to the matrix C of one

RELEASES: dict[str, Make] = {
    "tree": Tree,
    "sqrt_toeplitz": SqrtToeplitz,
    "blt": Blt,
    "input_perturbation": InputPerturbation,
}


def make(release: str | Make, n_syncs: int) -> Release:
    """Returns the release of a name for S synchronisations, or of a function of S that returns its matrix C.

    Raises:
        TypeError: if the function does not return a matrix.
        ValueError: if the name is unknown, S does not fit, or the matrix is not as `explicit` says.

    Example:
        >>> for name in RELEASES:  # noise at equal privacy: largest prefix variance times squared sensitivity
        ...     release = make(name, 400)
        ...     print(f"{name:18} {release.prefix_variance().max() * release.sensitivity_sq():6.2f}")
        tree                72.00
        sqrt_toeplitz        8.84
        blt                  8.85
        input_perturbation 400.00
    """
    kind = find(release)
    made = kind(n_syncs)
    if not struct.is_sealed(made):
        return explicit(made, n_syncs, str(getattr(kind, "__name__", "")) or type(kind).__name__)
    if not isinstance(made, Release) or made.n_syncs != n_syncs:
        raise BadValue("release", f"must be for n_syncs = {n_syncs} synchronisations", made)
    return made


def find(release: str | Make) -> Make:
    """Returns the class of a name; a class or function is returned as it is."""
    if callable(release):
        return release
    if not isinstance(release, str):
        got = validate.shown(release)
        raise BadType("release", "must be a name, or a function of S that returns a matrix", got, got=got)
    return RELEASES[validate.one_of("release", release, RELEASES)]


def tags(release: str | Make) -> dict[str, bool]:
    """Returns the tags of a release for `privacy.compatibility`, by its class."""
    kind = find(release)
    return {
        "release that is no tree": kind is not Tree,
        "release of sums over batches": kind is not InputPerturbation,
    }
