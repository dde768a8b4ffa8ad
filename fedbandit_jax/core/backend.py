"""The one place where the package asks which machine a program is compiled for.

XLA does not compile the same expression equally well everywhere. Wherever the package writes one in two ways, it asks
`on_cpu`, once and while tracing; the plain way stands beside the other, and a test compares the two.
"""

import jax


def on_cpu() -> bool:
    """Are programs compiled for a CPU? Asked while tracing, so that it decides which program is made."""
    return jax.default_backend() == "cpu"
