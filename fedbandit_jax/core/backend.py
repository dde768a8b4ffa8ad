"""The device that programs are compiled for, and the settings of JAX that they need.

If an expression has two forms, `on_cpu` or `on_gpu` chooses one while tracing. A test compares both.
"""

import contextlib
import contextvars
import functools
import os
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from fedbandit_jax.core.validate import BadValue

_BATCHED_SCATTERS = re.compile(r"--xla_gpu_(deterministic_ops|exclude_nondeterministic_ops)(?!=(false|0))\b")
UNROLL_DIM = 20  # largest d with sums unrolled in Python, which XLA:CPU still fuses


def on_cpu() -> bool:
    """Returns whether programs are compiled for a CPU."""
    return jax.default_backend() == "cpu"


def on_gpu() -> bool:
    """Returns whether programs are compiled for a GPU and may use Pallas kernels, see `without_kernels`."""
    return jax.default_backend() == "gpu" and not _without_kernels.get()


_SETTINGS = {  # setting of JAX -> required value and reason
    "jax_default_prng_impl": ("threefry2x32", "since its words are used directly"),
    "jax_disable_jit": (False, "or one round would take seconds: print from your code with jax.debug.print"),
    "jax_numpy_dtype_promotion": ("standard", "as for most of JAX; set 'strict' around your own code"),
    "jax_numpy_rank_promotion": (("allow", "warn"), "as for most of JAX; set 'raise' around your own code"),
}
_process: list[int] = []  # id of the process that first ran a program


def check() -> None:
    """Checks that JAX can run programs here, in float32 and int32 with IEEE 754 arithmetic.

    Raises:
        ValueError: `jax_enable_x64` or another setting of JAX has the wrong value, or flags let XLA reorder float32
            arithmetic, or add up wrongly on a GPU.
        RuntimeError: the process was forked after its parent had run a program.
    """
    if not _process:
        _process.append(os.getpid())
    if _process[0] != os.getpid():
        raise RuntimeError(
            f"process {os.getpid()} was forked from process {_process[0]}, which has run JAX: programs would deadlock. "
            "Start processes with multiprocessing.get_context('spawn'), or by executor 'processes:N'"
        )
    if jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
        raise BadValue("jax_enable_x64", "must be False: numbers are float32 and int32, or pairs of them", True)
    for name, (needed, why) in _SETTINGS.items():
        found = getattr(jax.config, name)
        if found not in (needed if isinstance(needed, tuple) else (needed,)):
            words = " or ".join(map(repr, needed)) if isinstance(needed, tuple) else repr(needed)
            raise BadValue(name, f"must be {words}, {why}", found)
    if not _keeps_order():
        must = (
            "must not let XLA reorder float32 arithmetic, as --xla_cpu_enable_fast_math=true does: compensated sums "
            "and draws of noise depend on its order"
        )
        raise BadValue("XLA_FLAGS", must, os.environ.get("XLA_FLAGS"))
    if jax.default_backend() == "gpu" and _BATCHED_SCATTERS.search(flags := os.environ.get("XLA_FLAGS", "")):
        raise BadValue(
            "XLA_FLAGS",
            "must not ask a GPU for deterministic operations: XLA then mixes up seeds in a scatter under vmap "
            "(https://github.com/openxla/xla/pull/34870; seen with jax 0.11.2). Runs had equal bits without them",
            flags,
        )


@functools.cache
def _keeps_order() -> bool:
    """Returns whether the rounding error of a float32 sum is computed exactly; only flags prevent it."""
    if not os.environ.get("XLA_FLAGS"):
        return True

    def error(a: jax.Array, b: jax.Array) -> jax.Array:
        total = a + b
        part = total - a
        return (a - (total - part)) + (b - part)

    given = np.full(1, 2**24, np.float32), np.ones(1, np.float32)
    return np.asarray(jax.jit(error).lower(*given).compile()(*given))[0] == 1  # compiled apart, also within a trace


_without_kernels = contextvars.ContextVar("without_kernels", default=False)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Excludes Pallas kernels, which XLA cannot analyse, from the traces inside the block."""
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
    """Returns compiler options for programs that run briefly; None if XLA does not know them.

    Compared to the usual level on a CPU, compilation takes half the time with the same results. At level 1 it takes a
    third, and programs are about as fast. At level 0 it takes a sixth, and programs two or three times as long.
    """
    if not (on_cpu() and _knows_quick()):
        return None
    return _QUICK if level is None else _QUICK | {"xla_backend_optimization_level": level}


def loop_options(emitters: bool) -> dict[str, Any] | None:
    """Returns compiler options for programs that run long.

    On a CPU, loops are twice as fast with vectors of 512 bits. XLA halves these by default. Its fusion emitters take
    half as long again to compile, and speed up only some loops.
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
