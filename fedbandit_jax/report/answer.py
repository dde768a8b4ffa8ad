"""A result on one screen and in one picture: regret, its ratio to play without privacy, and the guarantee in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedbandit_jax.certificate import PAIRS, PASSES, Certificate
from fedbandit_jax.report.result import Result
from fedbandit_jax.report.tables import aligned, bases, doubts, mean_error, size, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 79  # characters of a line
MOST_NAMES = 9  # names of curves at their ends
BLUE = "#0072B2"
STYLE: dict[Any, Any] = {"font.size": 8, "figure.titleweight": "bold", "lines.linewidth": 1.2}  # of a journal
NOT_PRIVATE, UNIFORM = "not private", "uses no data"
CLAIMS = {"weaker": "weaker than stated"}
MEANING = {
    "ratio": "to the least regret without privacy",
    "certified": "the budget is proved for the protocol that ran",
    NOT_PRIVATE: "no budget was asked for",
    UNIFORM: "epsilon = 0; rows below have not learned",
    "trusted": "the parties that users must trust",
}


def answer(result: Result) -> str:
    """Returns the setting, a table sorted by regret, and notes on what does not hold."""
    labels, worlds = result.labels, result.config["environments"]
    regret = {label: mean_error(result[label].regret[:, -1]) for label in labels}
    world = {label: [worlds[one] == worlds[label] for one in labels].index(True) for label in labels}
    order = sorted(labels, key=lambda label: (world[label], regret[label][0]))
    words = {label: _guarantee(result.certificates[label]) for label in order}
    best = {world[label]: regret[label][0] for label in reversed(order) if words[label][0] == NOT_PRIVATE}
    notes = list(dict.fromkeys(pair for pair in words.values() if pair[1]))
    rows = [("algorithm", "epsilon", "regret ± s.e.", "ratio", "privacy", "trusted")]
    for label in order:
        its, (word, why) = result.certificates[label], words[label]
        word += f" [{notes.index((word, why)) + 1}]" if why else ""
        word += f", {its.notion}" if its.epsilon and its.notion != PAIRS[0] else ""
        name = _name(result, label) + " (!)" * bool(result[label].status.any())
        ratio = _times(regret[label][0] / best[world[label]]) if best.get(world[label]) else "-"
        epsilon = f"{its.epsilon:g}" if its.epsilon else "-"
        rows.append((name, epsilon, rounded(*regret[label]), ratio, word, its.trusted or "-"))
    idle = {1: len({row[1] for row in rows[1:]} - {"-"}) < 2, 3: not best}
    rows = [tuple(cell for i, cell in enumerate(row) if not idle.get(i)) for row in rows]
    shown = {cell.partition(",")[0] for row in rows for cell in row}
    meanings = " ".join(f"{word.capitalize()}: {meaning}." for word, meaning in MEANING.items() if word in shown)
    lines = [*_setting(result), "", aligned(rows), "", *textwrap.wrap(meanings, WIDTH)]
    for i, (word, why) in enumerate(notes, 1):
        lines += textwrap.wrap(f"[{i}] {CLAIMS.get(word, word)}: {why}", WIDTH, subsequent_indent="    ")
    for warning in dict.fromkeys(one.warning for one in result.certificates.values() if one.warning):
        lines += textwrap.wrap(f"WARNING {warning}; ask for a smaller --delta", WIDTH, subsequent_indent=" " * 8)
    return "\n".join([*lines, *doubts(result)])


def details(result: Result) -> str:
    """Returns all tables and, of all algorithms with a budget or a proof, the certificates, each once."""
    whose: dict[Certificate, list[str]] = {}
    for label, one in result.certificates.items():
        if one.epsilon is not None:
            whose.setdefault(one, []).append(label)
    return "\n\n".join([summary(result), *(f"Certificate of {', '.join(of)}\n{one}" for one, of in whose.items())])


def rounded(mean: float, error: float) -> str:
    """Returns a mean and its standard error, which has two digits.

    >>> rounded(53051.6, 321.3), rounded(868.31, 9.61), rounded(12.5, float("nan"))
    ('53,050 ± 320', '868.3 ± 9.6', '12.5')
    """
    if not error > 0:
        return f"{mean:,.4g}" if abs(mean) < 1000 else f"{mean:,.0f}"
    digits = 1 - math.floor(math.log10(error))
    return " ± ".join(f"{round(one, digits):,.{max(0, digits)}f}" for one in (mean, error))


def overview(result: Result) -> Figure:
    """Draws regret over the rounds, or against epsilon if there are several, and names curves at their ends."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    from fedbandit_jax.report import plotting

    names = {_name(result, label) for label in result.labels}
    if len(names) > MOST_NAMES:
        return plotting.regret(result)
    looks = plotting.styles(result).values()
    claims = {(look.line, look.claim.partition(",")[0]) for look in looks if look.claim and look.line != "-."}
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
        if message := _message(result):
            figure.suptitle(message)
        lines = sorted(claims, key=lambda pair: len(pair[0]))
        keys = [Line2D([], [], color=BLUE, ls=line, label=claim) for line, claim in lines]
        if any(not look.claim for look in looks):
            keys.append(Line2D([], [], color="black", label="black and grey: not private"))
        if claims:
            figure.legend(handles=keys, loc="outside lower left", ncols=len(keys), frameon=False)
        if len(names) < len(result):
            return plotting.against(result, "epsilon", legend=False, ax=ax)
        return plotting.regret(result, legend=False, ax=ax)


def _message(result: Result) -> str:
    """Returns what the picture shows, in at most ten words, or nothing."""
    budgets: dict[tuple[Any, ...], list[float]] = {}
    for label, one in result.certificates.items():
        if one.claim == "certified" and one.epsilon:
            regret = result[label].regret[:, -1].mean()
            budgets.setdefault((one.notion, one.epsilon, one.delta), []).append(float(regret))
    ratios = [max(regrets) / min(regrets) for regrets in budgets.values() if min(regrets) > 0]
    if not ratios or max(ratios) < 2:
        return ""
    return f"At the same ε and δ, regret differs {_times(max(ratios)).removesuffix('.0')}-fold"


def _guarantee(its: Certificate) -> tuple[str, str]:
    """Returns the guarantee in words, and what does not hold and why."""
    if its.epsilon is None:
        return ("no claim", its.reason) if its.user_defined else (NOT_PRIVATE, "")
    if its.claim == "certified":
        return "certified" if its.epsilon else UNIFORM, ""
    why = its.reason.partition(PASSES)[0]
    if its.claim == "as_printed":
        return "weaker", why
    if its.epsilon_exact is None or math.isinf(its.epsilon_exact):
        return "no claim", why
    return "weaker", f"{why}; this noise gives epsilon = {its.epsilon_exact:.4g}"


def _setting(result: Result) -> Iterator[str]:
    kinds = dict.fromkeys(one.get("type", "environment") for one in result.config["environments"].values())
    yield f"{', '.join(kinds)}: {size(result)}"
    for basis in bases(result):
        yield from textwrap.wrap(basis, WIDTH)
    private = [one for one in result.certificates.values() if one.epsilon]
    epsilons, deltas = ({getattr(one, name) for one in private} - {None} for name in ("epsilon", "delta"))
    if epsilons:
        at = f" at delta = {deltas.pop():g}" if len(deltas) == 1 else ""
        yield f"Budget asked for: epsilon = {', '.join(f'{one:g}' for one in sorted(epsilons))}{at}"


def _name(result: Result, label: str) -> str:
    """Returns the algorithm of a label, if nothing but it and epsilon varies."""
    places = result.coordinates.values()
    varied = {
        name
        for one in places
        for name, value in one.items()
        if any(value != other.get(name, value) for other in places)
    }
    return str(result.coordinates[label]["algorithm"]) if varied <= {"algorithm", "epsilon"} else label


def _times(ratio: float) -> str:
    return f"{ratio:,.1f}" if ratio < 10 else f"{ratio:,.0f}"
