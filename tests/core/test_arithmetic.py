"""Numbers of a process that are not float32 by the rules of IEEE 754 are refused before a run."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from helpers import ENV, PLAIN, PRIVATE, One, refused, simulate

from fedbandit_jax.core import backend
from fedbandit_jax.core.programs import side_effect

SETTINGS = [
    *(("jax_enable_x64", True), ("jax_default_prng_impl", "rbg"), ("jax_disable_jit", True)),
    *(("jax_numpy_dtype_promotion", "strict"), ("jax_numpy_rank_promotion", "raise")),
]


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_settings(name, value):
    before, key = getattr(jax.config, name), jax.random.key(0, impl="threefry2x32")
    jax.config.update(name, value)
    try:
        for algo in (PRIVATE, PLAIN, One()):
            with refused(name, value):
                simulate(algo=algo, key=key)
        with refused(name, value):
            PRIVATE.certificate(ENV.spec, 4)
    finally:
        jax.config.update(name, before)


def test_a_process_that_was_forked(monkeypatch):
    """JAX waits for ever in it."""
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError):
        simulate()


def test_fast_arithmetic():
    """A process with the flag computes no rounding errors. (`test_settings` asks who looks before a run.)"""
    program = """
from fedbandit_jax.core import backend, validate
try:
    backend.check()
except validate.BadValue as error:
    print(error.argument, error.value)
"""
    env = os.environ | {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}
    env |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert said == "XLA_FLAGS --xla_cpu_enable_fast_math=true\n"


@pytest.mark.parametrize("flags", ["", "--xla_force_host_platform_device_count=2"])
def test_other_flags(monkeypatch, flags):
    """Errors are computed as they are, also while something else is traced."""
    monkeypatch.setenv("XLA_FLAGS", flags)
    backend._keeps_order.cache_clear()
    assert jax.jit(lambda x: x + backend._keeps_order())(1) == 2
    backend.check()


@pytest.mark.parametrize(("value", "asked"), [("", True), ("=true", True), ("=false", False), ("=0", False)])
@pytest.mark.parametrize("flag", ["deterministic_ops", "exclude_nondeterministic_ops"])
def test_deterministic_operations_of_a_gpu(monkeypatch, flag, value, asked):
    """Seen on an H200: with either flag clusterings of all seeds but the first were those of no algorithm."""
    flags = f"--xla_gpu_autotune_level=0 --xla_gpu_{flag}{value}"
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(backend, "_keeps_order", lambda: True)
    backend.check()  # on a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    if not asked:
        return backend.check()
    with refused("XLA_FLAGS", flags):
        backend.check()


def test_what_users_write_is_traced_without_kernels(monkeypatch):
    """A kernel reads and writes memory as it likes, so that nobody could say whether such a program is pure."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    asked = []
    assert side_effect(lambda x: (asked.append(backend.on_gpu()), x)[1], jnp.float32(1)) == ""
    assert asked == [False]
    assert backend.on_gpu()
