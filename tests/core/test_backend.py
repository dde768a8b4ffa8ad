"""What is asked about the device while a program is traced."""

import jax
import jax.numpy as jnp

from fedbandit_jax.core import backend
from fedbandit_jax.core.programs import leak


def test_what_users_write_is_traced_without_kernels(monkeypatch):
    """A kernel reads and writes memory as it likes, so that nobody could say whether such a program is pure."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    asked = []

    def one(x):
        asked.append(backend.on_gpu())
        return x

    assert leak(one, jnp.float32(1)) == ""
    assert asked == [False]
    assert backend.on_gpu()
