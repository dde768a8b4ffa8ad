"""Places of the package, found by the name of a function and by a pattern of what is written in it.

    mutated("gaussian_sigma", "jnp.sqrt(A) -> A", anchors(read(package)))

The first part names a function, a method (`Release.decode`), a class or a constant of a module, wherever it is; if the
package has several of that name, with the end of the file's path before it: `trust/model.py:noise`. The second part is
an expression or statement of Python and what replaces it. In it a single capital letter is any expression, or any name
of a variable, attribute, keyword or parameter, and the same letter is the same thing again. All else is as it stands,
so that layout, comments and names that a letter covers may change. `A * B -> A # 2/3` is the second of three places in
the order of the text; without a number there must be one.
"""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

LETTER = re.compile(r"[A-Z]")
IDENTIFIERS = {"arg", "attr", "id", "name"}  # fields that hold a name
Bindings = dict[str, "ast.AST | str"]


def parsed(text: str) -> ast.AST:
    """The expression that a text is, or else the statement."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        (statement,) = ast.parse(text).body
        return statement


def same(a: object, b: object) -> bool:
    """Equality of two pieces of syntax, wherever they stand."""
    if isinstance(a, ast.AST) and type(a) is type(b):
        return all(same(getattr(a, f, None), getattr(b, f, None)) for f in a._fields if f != "ctx")
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


def letter_of(node: object, field: str = "") -> str | None:
    """The letter that a node of a pattern is, or the content of one of its fields."""
    text = node.id if isinstance(node, ast.Name) else node if field in IDENTIFIERS else None
    return text if isinstance(text, str) and LETTER.fullmatch(text) else None


def matched(pattern: object, thing: object, bound: Bindings, field: str = "") -> bool:
    """Whether something fits a pattern, by letters that are entered in `bound`."""
    letter = letter_of(pattern, field)
    if letter and isinstance(thing, ast.expr | str):
        if isinstance(thing, ast.Starred | ast.Slice):
            return False
        value = thing.id if isinstance(thing, ast.Name) else thing
        return same(bound.setdefault(letter, value), value)
    if isinstance(pattern, ast.AST) and type(pattern) is type(thing):
        parts = (f for f in pattern._fields if f != "ctx")
        return all(matched(getattr(pattern, f, None), getattr(thing, f, None), bound, f) for f in parts)
    if isinstance(pattern, list) and isinstance(thing, list):
        return len(pattern) == len(thing) and all(matched(p, t, bound) for p, t in zip(pattern, thing))
    return same(pattern, thing)


class _Filled(ast.NodeTransformer):
    """Puts in place of letters what they were found to be."""

    def __init__(self, bound: Bindings) -> None:
        self.bound = bound

    def visit(self, node: ast.AST) -> ast.AST:
        node = self.generic_visit(node)
        for field in IDENTIFIERS & set(node._fields):
            letter = letter_of(getattr(node, field), field)
            if letter and letter not in self.bound:
                raise ValueError(f"the pattern does not say what {letter} is")
            value = self.bound[letter] if letter else None
            if isinstance(value, ast.AST):
                return value
            if letter:
                setattr(node, field, value)
        return node


class Anchored(NamedTuple):
    """A function, class or constant of a file."""

    file: str  # path in the package
    text: str  # of the file
    node: ast.AST


def read(package: Path) -> dict[str, str]:
    """The texts of all files of the package."""
    return {path.relative_to(package).as_posix(): path.read_text() for path in sorted(package.rglob("*.py"))}


def anchors(texts: Mapping[str, str]) -> Mapping[str, list[Anchored]]:
    """Functions, classes and constants of modules, and methods and fields of classes, by name."""
    found = collections.defaultdict(list)

    def enter(file: str, body: list[ast.stmt], outer: str = "") -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                enter(file, node.body, f"{node.name}.")
            if isinstance(node, ast.If) and not outer:
                enter(file, [*node.body, *node.orelse])
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [t.id for target in targets if target for t in ast.walk(target) if isinstance(t, ast.Name)]
            for name in {*names, getattr(node, "name", None)} - {None}:
                found[f"{outer}{name}"].append(Anchored(file, texts[file], node))

    for file, text in texts.items():
        enter(file, ast.parse(text).body)
    return found


def in_order(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, as they stand in the text. A string with values in it counts as one."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from in_order(child)


def mutated(anchor: str, change: str, known: Mapping[str, list[Anchored]]) -> tuple[str, str]:
    """The name of a file, and its text with a change ("A * B -> A # 2/3") in an anchor.

    Raises:
        ValueError: the anchor or the pattern is not there, or not as often as it should be; or the change is none, or
            speaks of a name that the file does not have.
    """
    path, _, name = anchor.rpartition(":")
    here = [one for one in known.get(name, []) if f"/{one.file}".endswith(f"/{path}" if path else "")]
    files = sorted({one.file for one in here})
    if len(files) != 1:
        raise ValueError(f"{anchor} must be in one file, not in {', '.join(files) or 'none'}")
    pair, _, which = change.partition(" # ")
    old, arrow, new = pair.partition(" -> ")
    if not arrow:
        raise ValueError(f"a change must be 'old -> new', perhaps with ' # 1/2', got {change!r}")
    pattern, hits = parsed(old), []
    for node in (n for one in here for n in in_order(one.node)):
        bound: Bindings = {}
        if matched(pattern, node, bound):
            hits.append((node, bound))
    index, _, count = (which or "1/1").partition("/")
    if len(hits) != int(count):
        raise ValueError(f"{old} must be {count} times in {anchor}, not {len(hits)} times")
    node, bound = hits[int(index) - 1]
    made = ast.fix_missing_locations(_Filled(bound).visit(parsed(new)))
    if same(node, made):
        raise ValueError(f"{change} changes nothing in {anchor}")
    unknown = {n.id for n in ast.walk(made) if isinstance(n, ast.Name)} - names(here[0].text)
    if unknown:
        raise ValueError(f"{change}: {', '.join(sorted(unknown))} is not a name of {files[0]}")
    return files[0], replaced(here[0].text, node, made)


@functools.cache
def names(text: str) -> frozenset[str]:
    """Names that a file knows."""
    return frozenset(re.findall(r"\w+", text)) | frozenset(dir(builtins))


def replaced(text: str, old: ast.AST, new: ast.AST) -> str:
    """A text in which one expression or statement is another."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    before = b"".join(lines[: old.lineno - 1]) + lines[old.lineno - 1][: old.col_offset]
    after = lines[old.end_lineno - 1][old.end_col_offset :] + b"".join(lines[old.end_lineno :])
    written = ast.unparse(new)
    bare = isinstance(new, ast.stmt) or any(isinstance(n, ast.Slice) for n in ast.iter_child_nodes(new))
    return (before + (written if bare else f"({written})").encode() + after).decode()
