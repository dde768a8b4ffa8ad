"""The device that a program is compiled for: the one place where the package asks.

Wherever an expression is written in two ways, `on_cpu` or `on_gpu` chooses while tracing, and a test compares the two.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator
from typing import Any

import jax

UNROLL_DIM = 20  # the largest d for which sums over features are unrolled in Python: XLA:CPU still fuses them all


def on_cpu() -> bool:
    """Whether programs are compiled for a CPU."""
    return jax.default_backend() == "cpu"


def on_gpu() -> bool:
    """Whether programs are compiled for a GPU, and may have kernels of our own, see `without_kernels`."""
    return jax.default_backend() == "gpu" and not _without_kernels.get()


_without_kernels = contextvars.ContextVar("without_kernels", default=False)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Keeps kernels of our own, which read and write memory as they like, out of what is traced inside."""
    token = _without_kernels.set(True)
    try:
        yield
    finally:
        _without_kernels.reset(token)


_QUICK = {
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def quick_options(level: int | None = None) -> dict[str, Any] | None:
    """Compiler options for programs that run briefly, or None where XLA does not know them.

    On a CPU compiling takes half of the time at the usual level, with the results of a program compiled in full; a
    third at level 1, and the program is about as fast; at level 0 a sixth, and the program two or three times as long.
    """
    if not (on_cpu() and _knows_quick()):
        return None
    return _QUICK if level is None else _QUICK | {"xla_backend_optimization_level": level}


def loop_options(emitters: bool) -> dict[str, Any] | None:
    """Compiler options for programs that run long.

    On a CPU these are vectors of 512 bits, which XLA halves by default: loops are twice as fast. Its fusion emitters
    take half as long again to compile; some loops are faster with them, some without.
    """
    if not on_cpu():
        return None
    without = {} if emitters or not _knows_quick() else {"xla_cpu_use_fusion_emitters": False}
    return {"xla_cpu_prefer_vector_width": 512} | without


@functools.cache
def _knows_quick() -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=_QUICK)()
    except jax.errors.JaxRuntimeError:
        return False
    return True
