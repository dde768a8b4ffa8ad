"""An entry: a function from a task to a recipe, in a file whose bytes determine the test seeds."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import inspect
import linecache
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedbandit_jax.benchmark.task import Task
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.interfaces import Algorithm

TRACKS = ("one recipe", "tuned")
FUNCTION = "recipe"  # default name of the function


def digest_of(function: str, source: str) -> str:
    """Returns the SHA-256 of the name of a function and its code."""
    return hashlib.sha256(f"{function}\n{source}".encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Entry:
    """A function task -> recipe, and its source code.

    Attributes:
        name: name of the row.
        function: name of the function.
        source: text of the file.
        recipe: the function, from a `Task` to an algorithm, or None if it has none for that task.
    """

    name: str
    function: str
    source: str
    recipe: Callable[[Task], Algorithm | None] = dataclasses.field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the code and the name of the function."""
        return digest_of(self.function, self.source)

    @property
    def about(self) -> str:
        """Docstring of the file."""
        return ast.get_docstring(ast.parse(self.source)) or ""

    def where(self, error: BaseException) -> str:
        """Formats an error with the line of the entry that raised it."""
        kind = "" if isinstance(error, (ValueError, TypeError)) else f"{type(error).__name__}: "
        code = getattr(inspect.unwrap(self.recipe), "__code__", None)
        file = code and code.co_filename
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        return f"{kind}{error}" + (f" ({Path(str(file)).name}, line {lines[-1]})" if lines else "")

    @classmethod
    def of(cls, entry: Any, name: str | None = None) -> Entry:
        """Makes an entry from a path with the name of a function, such as "mine.py:recipe"."""
        if isinstance(entry, Entry):
            if not callable(entry.recipe):
                raise BadType("entry's recipe", "must be a function of a task", entry.recipe)
            return entry if name is None else dataclasses.replace(entry, name=name)
        if not isinstance(entry, (str, Path)):
            raise BadType("entry", "must be a path such as 'mine.py:recipe', or an fb.benchmark.Entry", entry)
        path, _, function = str(entry).partition(".py:")
        path, function = (Path(f"{path}.py"), function) if function else (Path(entry), FUNCTION)
        if path.suffix != ".py" or not path.is_file():
            raise BadValue("entry", "must be an existing FILE.py or FILE.py:FUNCTION", str(entry))
        return cls.read(path.read_text(encoding="utf-8"), function, path.stem if name is None else name)

    @classmethod
    def read(cls, source: str, function: str, name: str) -> Entry:
        """Runs the text of a file, which alone determines the seeds, and takes the function of this name."""
        digest = hashlib.sha256(source.encode()).hexdigest()
        module = types.ModuleType(f"entry_{digest[:16]}")  # the module of the entry's classes
        module.__file__ = f"{name}.py"
        sys.modules[module.__name__] = module
        linecache.cache[module.__file__] = len(source), None, source.splitlines(keepends=True), module.__file__
        try:
            exec(compile(source, module.__file__, "exec", dont_inherit=True), vars(module))
        except SystemExit as error:
            raise BadValue("entry", "must not exit", name, got=f"SystemExit({error.code!r}) in {name}") from error
        if not inspect.isfunction(getattr(module, function, None)):
            there = ", ".join(found for found, one in vars(module).items() if inspect.isfunction(one)) or "none"
            got = f"{function!r}, but it has {there}"
            raise BadValue("entry", "must name a function of the file", function, got=got)
        return cls(name, function, source, getattr(module, function))
