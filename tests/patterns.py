"""Places of the package, found by the name of a function and by a pattern of what is written in it.

    Place("gaussian_sigma", "jnp.sqrt(A) -> A").mutated(sources)

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
import operator
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
    texts = (re.sub(r", ctx=\w+\(\)", "", ast.dump(x)) if isinstance(x, ast.AST) else repr(x) for x in (a, b))
    return operator.eq(*texts)


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


class Source(NamedTuple):
    """A file of the package."""

    name: str  # path in the package
    text: str
    tree: ast.Module


def read(package: Path) -> list[Source]:
    """All files of the package."""
    texts = [(path, path.read_text()) for path in sorted(package.rglob("*.py"))]
    return [Source(path.relative_to(package).as_posix(), text, ast.parse(text)) for path, text in texts]


def anchors(sources: list[Source]) -> Mapping[str, list[tuple[Source, ast.AST]]]:
    """Functions, classes and constants of modules, and methods and fields of classes, by name."""
    found = collections.defaultdict(list)

    def enter(source: Source, body: list[ast.stmt], outer: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                enter(source, node.body, f"{node.name}.")
            if isinstance(node, ast.If) and not outer:
                enter(source, [*node.body, *node.orelse], outer)
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [t.id for target in targets if target for t in ast.walk(target) if isinstance(t, ast.Name)]
            for name in {*names, getattr(node, "name", None)} - {None}:
                found[f"{outer}{name}"].append((source, node))

    for source in sources:
        enter(source, source.tree.body, "")
    return found


def in_order(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, as they stand in the text. A string with values in it counts as one."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from in_order(child)


class Place(NamedTuple):
    """Something that is written in a function, and what is put there instead."""

    anchor: str
    change: str  # "A * B -> A # 2/3"

    def found(self, known: Mapping[str, list[tuple[Source, ast.AST]]]) -> tuple[Source, ast.AST, ast.AST]:
        """The file, the expression or statement, and what replaces it.

        Raises:
            ValueError: the function or the pattern is not there, or not as often as it should be.
        """
        file, _, name = self.anchor.rpartition(":")
        nodes = [(s, node) for s, node in known.get(name, []) if f"/{s.name}".endswith(f"/{file}" if file else "")]
        files = sorted({source.name for source, _ in nodes})
        if len(files) != 1:
            raise ValueError(f"{self.anchor} must be in one file, not in {', '.join(files) or 'none'}")
        pair, _, which = self.change.partition(" # ")
        old, arrow, new = pair.partition(" -> ")
        if not arrow:
            raise ValueError(f"a change must be 'old -> new', perhaps with ' # 1/2', got {self.change!r}")
        pattern, hits = parsed(old), []
        for node in (n for _, root in nodes for n in in_order(root)):
            bound: Bindings = {}
            if matched(pattern, node, bound):
                hits.append((node, bound))
        index, _, count = (which or "1/1").partition("/")
        if len(hits) != int(count):
            raise ValueError(f"{old} must be {count} times in {self.anchor}, not {len(hits)} times")
        node, bound = hits[int(index) - 1]
        return nodes[0][0], node, ast.fix_missing_locations(_Filled(bound).visit(parsed(new)))

    def mutated(self, known: Mapping[str, list[tuple[Source, ast.AST]]]) -> tuple[str, str]:
        """The name of the file, and its text with the change.

        Raises:
            ValueError: as `found`; or the change is none, or speaks of a name that the file does not have.
        """
        source, old, new = self.found(known)
        if same(old, new):
            raise ValueError(f"{self.change} changes nothing in {self.anchor}")
        unknown = {n.id for n in ast.walk(new) if isinstance(n, ast.Name)} - names(source.text)
        if unknown:
            raise ValueError(f"{self.change}: {', '.join(sorted(unknown))} is not a name of {source.name}")
        return source.name, replaced(source.text, old, new)


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
