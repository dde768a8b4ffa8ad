"""The one place where the package asks which device a program is compiled for.

XLA does not compile the same expression equally well on every device. Wherever the package writes one in two ways, it
chooses by `on_cpu`, once and while tracing; the plain way stands beside the fast one, and a test compares the two.
"""

import jax


def on_cpu() -> bool:
    """Returns whether programs are compiled for a CPU; called while tracing, it decides which program is made."""
    return jax.default_backend() == "cpu"
