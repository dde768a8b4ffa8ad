"""The device that a program is compiled for: the one place where the package asks.

Wherever an expression is written in two ways, `on_cpu` or `on_gpu` chooses while tracing, and a test compares the two.
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
UNROLL_DIM = 20  # the largest d for which sums over features are unrolled in Python: XLA:CPU still fuses them all


def on_cpu() -> bool:
    """Whether programs are compiled for a CPU."""
    return jax.default_backend() == "cpu"


def on_gpu() -> bool:
    """Whether programs are compiled for a GPU, and may have kernels of our own, see `without_kernels`."""
    return jax.default_backend() == "gpu" and not _without_kernels.get()


_SETTINGS = {  # setting of JAX -> the value needed, and why
    "jax_default_prng_impl": ("threefry2x32", "whose words are used"),
    "jax_disable_jit": (False, "where one round would take seconds: print from your own code with jax.debug.print"),
    "jax_numpy_dtype_promotion": ("standard", "as for most of JAX; set 'strict' where your own code is traced"),
    "jax_numpy_rank_promotion": (("allow", "warn"), "as for most of JAX; set 'raise' where your own code is traced"),
}
_process: list[int] = []  # the process that has first run a program


def check() -> None:
    """Checks that JAX can run programs here, on numbers that are float32 and int32 by the rules of IEEE 754.

    Raises:
        ValueError: `jax_enable_x64` or another setting of JAX is not what this package needs, or flags let XLA reorder
            float32 arithmetic, or add up wrongly on a GPU.
        RuntimeError: the process was forked from one that had run a program.
    """
    if not _process:
        _process.append(os.getpid())
    if _process[0] != os.getpid():
        raise RuntimeError(
            f"process {os.getpid()} was forked from process {_process[0]}, which has run JAX: programs would wait for "
            "ever. Start processes with multiprocessing.get_context('spawn'), or by executor 'processes:N'"
        )
    if jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
        raise BadValue(
            "jax_enable_x64",
            "must be False: everything here is float32 and int32, with pairs of them where that is not enough",
            True,
        )
    for name, (needed, why) in _SETTINGS.items():
        found = getattr(jax.config, name)
        if found not in (needed if isinstance(needed, tuple) else (needed,)):
            words = " or ".join(map(repr, needed)) if isinstance(needed, tuple) else repr(needed)
            raise BadValue(name, f"must be {words}, {why}", found)
    if not _keeps_order():
        raise BadValue(
            "XLA_FLAGS",
            "must not let XLA reorder float32 arithmetic, as --xla_cpu_enable_fast_math=true does: sums as pairs "
            "of floats, and draws of noise, rest on its rules",
            os.environ.get("XLA_FLAGS"),
        )
    if jax.default_backend() == "gpu" and _BATCHED_SCATTERS.search(flags := os.environ.get("XLA_FLAGS", "")):
        raise BadValue(
            "XLA_FLAGS",
            "must not ask a GPU for deterministic operations: what XLA then makes of a scatter under vmap mixes "
            "up seeds (https://github.com/openxla/xla/pull/34870; seen with jax 0.11.2), and runs had equal bits "
            "without it",
            flags,
        )


@functools.cache
def _keeps_order() -> bool:
    """Whether the error of a float32 sum can be computed; only flags could prevent it."""
    if not os.environ.get("XLA_FLAGS"):
        return True
    return compiled_error(np.full(1, 2**24, np.float32), np.ones(1, np.float32))[0] == 1


def compiled_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of a and b less its rounding to float32, by a program of its own, also inside of a trace.

    >>> compiled_error(np.full(1, 2**24, np.float32), np.ones(1, np.float32)).tolist()
    [1.0]
    """

    def error(a: jax.Array, b: jax.Array) -> jax.Array:
        total = a + b
        part = total - a
        return (a - (total - part)) + (b - part)

    return np.asarray(jax.jit(error).lower(a, b).compile()(a, b))


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
