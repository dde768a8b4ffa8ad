"""Reads the guarantees of bound algorithms."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from fedbandit_jax.certificate import Certificate, no_privacy
from fedbandit_jax.core import struct
from fedbandit_jax.privacy import behaviour
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism

NONSENSE = ArithmeticError, AttributeError, LookupError, TypeError, ValueError  # raised by proofs of impossible fields

# where `Spec.of_rows` says that there is one
OF_A_TABLE = "the people whose rows are in the table, and the times at which they appear"


def certificate_of(bound: Any, spec: Any, horizon: int) -> Certificate:
    """Returns the guarantee of a bound algorithm for T = `horizon` rounds in an environment with this `fb.Spec`."""
    spec = getattr(bound, "spec", spec)  # which is what the proof is about
    found = certify(bound)
    if found.claim == "none":
        return found
    found = found.among(spec.visits(horizon))
    if not spec.of_rows:
        return found
    return dataclasses.replace(found, not_covered=(*found.not_covered, OF_A_TABLE))


def certify(bound: Any) -> Certificate:
    """Returns the guarantee of a bound algorithm; only the package's own sealed loops prove anything.

    It is read from the leaves and static fields of the pytree, the input of a compiled program. If a part is
    user-defined, the noise is drawn as well, and must behave as declared (see `fedbandit_jax.privacy.behaviour`). If
    fields are so wrong that their proof raises an error, nothing is claimed, and the error is the reason.
    """
    if not struct.is_sealed(bound):
        name = type(bound).__name__
        nothing = no_privacy(
            f"{name} is a user-defined algorithm that sees raw rewards; to have one certified, write an fb.Policy, "
            "which sees released statistics only"
        )
        return dataclasses.replace(nothing, user_defined=(f"algorithm: {name}",))
    strange = struct.strange(bound)
    bound = jax.tree.map(lambda leaf: leaf if np.asarray(leaf).dtype == object else np.asarray(leaf), bound)
    for leaf in jax.tree.leaves(bound):
        if np.asarray(leaf).dtype.kind in "iuf":
            with np.errstate(over="ignore"):
                held = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
            if not np.allclose(leaf, held, 1e-6, 0, equal_nan=True):
                return no_privacy(f"nothing is proved of numbers that 32 bits do not hold, such as {leaf.ravel()[0]:g}")
    mechanism = getattr(bound, "mechanism", None)
    try:
        found = bound.guarantee()
    except NONSENSE as error:
        return no_privacy(_nonsense(error))
    noisy = isinstance(mechanism, NoisyMechanism)
    if found.epsilon is not None or noisy:
        found = dataclasses.replace(found, user_defined=tuple(dict.fromkeys(struct.user_defined(bound))))
    if found.claim != "none" and strange:
        return _nothing(f"nothing is proved of {strange}, which is not from this package", found)
    if found.claim == "none" or not noisy or (struct.shipped(bound) and not found.user_defined):
        return found
    try:
        wrong = behaviour.fault(mechanism)
    except NONSENSE as error:
        return _nothing(_nonsense(error), found)
    return _nothing(f"nothing is proved of this mechanism: {wrong}", found) if wrong else found


def _nonsense(error: Exception) -> str:
    return f"nothing is proved of fields that no recipe binds ({type(error).__name__}: {error})"


def _nothing(reason: str, found: Certificate) -> Certificate:
    return dataclasses.replace(no_privacy(reason), user_defined=found.user_defined)
