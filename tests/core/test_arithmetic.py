"""Numbers of a process that are not float32 by the rules of IEEE 754 are refused, by one sentence, before a run."""

import os
import subprocess
import sys

import jax
import pytest

import fedbandit_jax as fb
from fedbandit_jax.core import backend

ENV = fb.envs.sphere(n_agents=2, n_arms=3, dim=2, rewards="bernoulli")
PRIVATE = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=2)


@fb.pytree
class Own(fb.Algorithm):
    """No recipe."""


@pytest.mark.parametrize("algo", [PRIVATE, fb.algos.fed_lin_ucb(), Own()], ids=["private", "plain", "own"])
def test_64_bits(algo):
    with jax.enable_x64(True), pytest.raises(ValueError, match="jax_enable_x64 must be False: .* float32 .*got True"):
        fb.simulate(ENV, algo, horizon=4, key=jax.random.key(0), seeds=1)


def test_64_bits_and_certificates():
    with jax.enable_x64(True), pytest.raises(ValueError, match="jax_enable_x64 must be False"):
        PRIVATE.certificate(ENV.spec, 4)


def test_keys_of_another_generator():
    key = jax.random.key(0, impl="threefry2x32")
    with jax.default_prng_impl("rbg"), pytest.raises(ValueError, match="jax_default_prng_impl must be .*, got 'rbg'"):
        fb.simulate(ENV, PRIVATE, horizon=4, key=key, seeds=1)


def test_fast_arithmetic():
    """A process with the flag computes no rounding errors, and says so when an algorithm is bound."""
    program = """
import fedbandit_jax as fb
spec = fb.envs.sphere(n_agents=2, n_arms=3, dim=2, rewards="bernoulli").spec
try:
    fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1), schedule=2).bind(spec, 4)
except ValueError as error:
    print(error)
"""
    env = os.environ | {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}
    env |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert said.startswith("XLA_FLAGS must not let XLA reorder float32 arithmetic")
    assert "got '--xla_cpu_enable_fast_math=true'" in said


@pytest.mark.parametrize("flags", ["", "--xla_force_host_platform_device_count=2"])
def test_other_flags(monkeypatch, flags):
    """Errors are computed as they are, also while something else is traced."""
    monkeypatch.setenv("XLA_FLAGS", flags)
    backend._keeps_order.cache_clear()
    assert jax.jit(lambda x: x + backend._keeps_order())(1) == 2
    backend.check()


@pytest.mark.parametrize("value", ["", "=true", "=1"])
@pytest.mark.parametrize("flag", ["deterministic_ops", "exclude_nondeterministic_ops"])
def test_deterministic_operations_of_a_gpu(monkeypatch, flag, value):
    """Seen on an H200: with either flag clusterings of all seeds but the first were those of no algorithm."""
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_autotune_level=0 --xla_gpu_{flag}{value}")
    monkeypatch.setattr(backend, "_keeps_order", lambda: True)
    backend.check()  # on a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(ValueError, match=rf"must not ask a GPU for deterministic .*got '.*{flag}{value}'"):
        backend.check()


@pytest.mark.parametrize("value", ["false", "0"])
def test_deterministic_operations_that_are_not_asked_for(monkeypatch, value):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_deterministic_ops={value}")
    monkeypatch.setattr(backend, "_keeps_order", lambda: True)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    backend.check()
