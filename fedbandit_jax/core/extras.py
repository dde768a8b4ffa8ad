"""Imports of optional dependencies."""

import importlib
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Imports a module, or raises an `ImportError` that names the extra to install.

    >>> require("math", "any").__name__
    'math'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(module, extra) from error


def missing(module: str, extra: str) -> ImportError:
    """Makes the error for a module that is not installed."""
    install = f"pip install 'fedbandit_jax[{extra}]', or '.[{extra}]' in a checkout"
    return ImportError(f"{module.partition('.')[0]} is not installed: {install}", name=module)
