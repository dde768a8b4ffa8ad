"""`python -m fedbandit_jax`: the same as `fedbandit`."""

from fedbandit_jax.cli import entry

if __name__ == "__main__":
    entry()
