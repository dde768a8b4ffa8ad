"""Imports of scikit-learn, which is optional."""

from importlib import import_module
from types import ModuleType


def require(module: str) -> ModuleType:
    """Imports a module of scikit-learn, or raises an `ImportError` that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"this loader needs {module}, which is not installed: pip install 'fedbandit_jax[data]'"
        ) from error
