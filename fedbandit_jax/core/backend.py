"""The one place where the package asks which device a program is compiled for.

XLA does not compile the same expression equally well on every device. Wherever the package writes one in two ways, it
chooses by `on_cpu`, once and while tracing; the plain way stands beside the fast one, and a test compares the two.
"""

from typing import Any

import jax


def on_cpu() -> bool:
    """Returns whether programs are compiled for a CPU; called while tracing, it decides which program is made."""
    return jax.default_backend() == "cpu"


_QUICK = {
    "xla_backend_optimization_level": 1,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def quick_options() -> dict[str, Any] | None:
    """Returns compiler options for programs that run briefly, or None where XLA does not know them.

    On a CPU they take a third of the time to compile, and run about as fast.
    """
    if not on_cpu():
        return None
    try:
        jax.jit(lambda: 0, compiler_options=_QUICK)()
    except jax.errors.JaxRuntimeError:
        return None
    return _QUICK
