"""How default tests compile: hundreds of programs, each run for a moment, need not be optimised.

python tests/quick.py prints the flags, for smoke runs.
"""

import os
import subprocess
import sys

FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"  # half of the time of compiling


def compile_quickly():
    """Sets XLA_FLAGS, before JAX has started, unless XLA is of a version that does not know the flags."""
    given = os.environ.get("XLA_FLAGS", "")
    if FLAGS in given:  # a worker inherits what the first process has found out
        return
    probe = [sys.executable, "-c", "import jax; jax.numpy.zeros(1)"]  # XLA ends where it does not know a flag
    if not subprocess.run(probe, env={**os.environ, "XLA_FLAGS": FLAGS}, capture_output=True).returncode:
        os.environ["XLA_FLAGS"] = f"{FLAGS} {given}"


if __name__ == "__main__":
    compile_quickly()
    print(os.environ.get("XLA_FLAGS", ""))
