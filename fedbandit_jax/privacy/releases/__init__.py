"""Continual release of prefix sums: see `Release` for the mathematics, `RELEASES` for the mechanisms by name."""

from collections.abc import Callable

from fedbandit_jax.core import validate
from fedbandit_jax.privacy.releases._release import Release as Release
from fedbandit_jax.privacy.releases.toeplitz import Blt as Blt
from fedbandit_jax.privacy.releases.toeplitz import InputPerturbation as InputPerturbation
from fedbandit_jax.privacy.releases.toeplitz import SqrtToeplitz as SqrtToeplitz
from fedbandit_jax.privacy.releases.trees import Honaker as Honaker
from fedbandit_jax.privacy.releases.trees import PrefixTree as PrefixTree
from fedbandit_jax.privacy.releases.trees import Tree as Tree

RELEASES: dict[str, Callable[[int], Release]] = {
    "tree": Tree,
    "prefix_tree": PrefixTree,
    "honaker": Honaker,
    "sqrt_toeplitz": SqrtToeplitz,
    "blt": Blt,
    "input_perturbation": InputPerturbation,
}


def make(name: str, n_syncs: int) -> Release:
    """The named release for S synchronisations.

    >>> for name in RELEASES:  # noise at equal privacy: largest prefix variance times squared sensitivity
    ...     release = make(name, 400)
    ...     print(f"{name:18} {release.prefix_variance().max() * release.sensitivity_sq():6.2f}")
    tree                72.00
    prefix_tree         72.00
    honaker             43.21
    sqrt_toeplitz        8.84
    blt                  8.85
    input_perturbation 400.00
    """
    return RELEASES[validate.one_of("release", name, RELEASES)](n_syncs)


def is_built_in(release: Release) -> bool:
    """Is it proved by our tests? Others are checked when they are calibrated."""
    return type(release).__module__.startswith("fedbandit_jax.")
