"""Random one-line mistakes in functions of the package, as `python tests/mutants.py --random 60` tries them."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from typing import NamedTuple

from patterns import Source, replaced

ARITHMETIC = [ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod]
COMPARISONS = [ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq]
TWINS = {"min": "max", "minimum": "maximum", "any": "all", "argmin": "argmax", "floor": "ceil"}
TWINS |= {other: one for one, other in TWINS.items()}
SILENT = ast.JoinedStr | ast.Raise | ast.Assert  # messages are not what a mistake is about
UNREAD = {"annotation", "returns", "decorator_list", "type_params"}  # parts that say nothing about values


class RandomMistake(NamedTuple):
    file: str
    line: int
    what: str  # "a + b -> a - b"
    text: str  # the whole file with the mistake


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a slip of the hand makes of an expression."""
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield from (_with(node, op=op()) for op in ARITHMETIC[:4] if op is not type(node.op))
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield from (_with(node, ops=[op(), *node.ops[1:]]) for op in COMPARISONS if op is not type(node.ops[0]))
    if isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield from (_with(node, value=value) for value in (node.value + 1, node.value - 1, -node.value))
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _with(node, value=not node.value)
    if isinstance(node, ast.Call):
        yield from (
            _with(node, keywords=[k for k in node.keywords if k is not one]) for one in node.keywords if one.arg
        )
        if node.args and not isinstance(node.args[0], ast.Starred):
            yield node.args[0]
    if isinstance(node, ast.Attribute) and node.attr in TWINS:
        yield _with(node, attr=TWINS[node.attr])
    if isinstance(node, ast.Name) and node.id in TWINS:
        yield _with(node, id=TWINS[node.id])


def _with(node: ast.AST, **parts: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in parts.items():
        setattr(other, name, value)
    return other


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a function and can be mistaken."""
    for field, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST) and not isinstance(part, SILENT) and field not in UNREAD:
                yield part
                yield from expressions(part)


def random_mistakes(sources: list[Source], n: int, seed: int) -> list[RandomMistake]:
    """As many different mistakes, each in a function that is drawn at random."""
    rng = random.Random(seed)
    functions = [(s, node) for s in sources for node in ast.walk(s.tree) if isinstance(node, ast.FunctionDef)]
    found: dict[str, RandomMistake] = {}
    while len(found) < n:
        source, function = rng.choice(functions)
        options = [(old, new) for old in expressions(function) for new in changes(old)]
        if options:
            old, new = rng.choice(options)
            text = replaced(source.text, old, new)
            if ast.dump(ast.parse(text)) != ast.dump(source.tree):
                what = f"{function.name}: {ast.unparse(old)} -> {ast.unparse(new)}"
                found[text] = RandomMistake(source.name, old.lineno, what, text)
    return list(found.values())
