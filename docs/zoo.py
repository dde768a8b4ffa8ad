"""Writes docs/zoo.md, a card for every algorithm, from docs/zoo.toml: python docs/zoo.py. What can be computed is."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

from fedbandit_jax.benchmark import board
from fedbandit_jax.engine.identity import describe
from fedbandit_jax.report.cite import behind, entries

HERE = Path(__file__).parent
START = """\
>>> import fedbandit_jax as fb
>>> import networkx as nx
>>> silos = fb.envs.sphere(n_agents=20, n_arms=30, dim=5, rewards="bernoulli")
>>> fixed = fb.envs.sphere(n_agents=20, n_arms=2, dim=2, contexts="shared", rewards="bernoulli")
>>> arms = fb.envs.arms(n_arms=10, rewards="bernoulli")
>>> users = fb.envs.clustered(n_users=20, n_servers=4, n_clusters=2, dim=5)
>>> budget = fb.privacy.Budget(epsilon=1.0, delta=1e-6)
>>> def claim(algo, env):
...     found = algo.certificate(env.spec, horizon=100_000 if env is arms else 2_000)
...     if found.epsilon is None:
...         return "asks for no privacy"
...     if found.claim == "none":
...         return "none"
...     return f"{found.claim}: epsilon = {found.epsilon_exact:.3g} at delta = {found.delta:g}"
..."""
PAGE = """\
# The zoo

A card for every algorithm: where it comes from, how it is made, what its certificate says on a small instance, how
letters of its paper are called here, and how it does in the [benchmark](benchmark.md). Noise, releases and trust models
are parts that any algorithm can `replace`, see [privacy](privacy.md). Deviations from print are marked DEVIATION in
docstrings. `python docs/zoo.py` writes this page.

```python
{start}

```

{cards}

## BibTeX

`fb.cite(result)` has what a result rests on; these are all.

```bibtex
{bibtex}
```
"""


def cards() -> list[dict[str, Any]]:
    """What docs/zoo.toml says."""
    return tomllib.loads((HERE / "zoo.toml").read_text(encoding="utf-8"))["card"]


def instances() -> dict[str, Any]:
    """What the first example of the page defines."""
    names: dict[str, Any] = {}
    exec("\n".join(line[4:] for line in START.splitlines()), names)
    return names


def page() -> str:
    """The text of docs/zoo.md."""
    names, rows = instances(), {row.name: row for row in board.rows()}
    parts = []
    for family, found in itertools.groupby(cards(), key=lambda card: card["family"]):
        parts += [f"## {family}\n", *(_card(card, names, rows) for card in found)]
    return PAGE.format(start=START, cards="\n".join(parts).strip(), bibtex="\n\n".join(entries().values()))


def _card(card: dict[str, Any], names: dict[str, Any], rows: dict[str, Any]) -> str:
    algo, env = eval(card["code"], names), names[card["env"]]
    proved = algo.certificate(env.spec, horizon=100_000 if card["env"] == "arms" else 2_000)
    about = card["about"]
    if proved.claim != "certified" and proved.epsilon is not None:
        about += f" Not certified: {proved.reason.partition(';')[0]}."
    lines = [f"### {card['title']}", "", about, "", "```python", f">>> claim({card['code']}, {card['env']})",
             repr(names["claim"](algo, env)), "", "```", ""]  # fmt: skip
    if proved.epsilon is not None:
        whom, unit = proved.trust.partition(";")[0], re.split("[:;]", proved.unit)[0]
        lines.append(f"- {whom[0].upper()}{whom[1:]}. Protected is {unit}.")
    if letters := card.get("letters"):
        lines.append("- " + ", ".join(f"{letter}: `{name}`" for letter, name in letters.items()) + ".")
    lines += [f"- {_scores(rows[name], rows)}." for name in card.get("rows", ())]
    if papers := sorted({*card.get("papers", ()), *behind([describe(algo)])}):
        lines.append("- Cite " + ", ".join(f"`{key}`" for key in papers) + ".")
    return "\n".join([*lines, ""])


def _scores(row: Any, rows: dict[str, Any]) -> str:
    counted = [cell for cell in row.cells.values() if not cell.refused]
    if not counted:
        return f"`{row.name}` counts in no task of the benchmark"
    top = max(counted, key=lambda cell: cell.score)
    first = [cell.task for cell in counted if cell.score == max(one.cells[cell.task].score for one in rows.values())]
    won = f", the best of all in {', '.join(first)}" if first else ""
    return f"`{row.name}`: mean S {row.score:.3f}, its highest {top.score:.3f} in {top.task}{won}"


if __name__ == "__main__":
    (HERE / "zoo.md").write_text(page(), encoding="utf-8")
