"""What tests of the command line share."""

import csv
import re
import typing

import numpy as np
from handmade import visits

from fedbandit_jax.cli import main

COLUMNS = "--silo hospital --arm drug --reward cured"
SWEEP = """
horizon = 40
seeds = 3
[environment]
type = "sphere"
n_agents = 3
n_arms = 4
dim = 5
[algorithms.plain]
type = "fed_lin_ucb"
schedule = 5
[algorithms.ours]
type = "private_fed_lin_ucb"
schedule = 5
privacy = { type = "Budget", epsilon = 1.0, delta = 0.1 }
[grid]
epsilon = [1.0, 5.0]
"""  # the small run of `helpers`


def write_log():
    """Writes log.csv, 400 visits."""
    log = visits() | {"pressure, systolic": np.random.default_rng(0).normal(size=400).round(2)}
    with open("log.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([log, *zip(*(column.tolist() for column in log.values()))])


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def choices(command, flag):
    """Of a Literal, also inside a tuple or a union."""
    kind = typing.get_type_hints(command)[flag]
    parts = [kind, *typing.get_args(kind)]
    return {word for part in parts if typing.get_origin(part) is typing.Literal for word in typing.get_args(part)}


def commands(table):
    """Commands of a table {words: flags | flags | ...}."""
    return [f"{words} {flags}" for words, some in table.items() for flags in some.split(" | ")]


def refuses(command, capsys, folder):
    """Whether a command ends with one sentence about its last flag, and leaves no file but those that were there."""
    before = sorted(folder.rglob("*"))
    code, error = main(command.split()), capsys.readouterr().err
    *_, (flag, parameter) = re.findall(r"(--[\w-]+)(?: ([\w.]+)=)?", command) or [("", "")]
    name = parameter.rpartition(".")[2] or flag[2:].replace("-", "_")
    words = " must ", " applies only ", " does not support "
    about = error.startswith("fedbandit: ") and name in error.replace("-", "_") and any(one in error for one in words)
    about = about and (error.startswith(f"fedbandit: {flag}") or ".toml" in error)
    left = [path for path in folder.rglob("*") if path not in before and not path.is_dir()]
    return (code, about, error.count("\n"), left) == (2, True, 1, []) or print(code, error, left)
