"""Writes docs/zoo.md, a card for every algorithm, from docs/zoo.toml: python docs/zoo.py."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

from fedbandit_jax.benchmark import board

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
...         return "no privacy"
...     if found.claim == "none":
...         return "none"
...     return f"{found.claim}: epsilon = {found.epsilon_exact:.3g} at delta = {found.delta:g}"
..."""
PAGE = """\
# The zoo

This page has every algorithm of the package. A table names its source, its guarantee on a small instance, and its
entry in the [benchmark](benchmark.md) with the mean score. A card has the code, and the names of the paper's letters.

You can `replace` noise, releases and trust models in any algorithm: see [mechanisms](privacy.md). DEVIATION in a
docstring marks a difference from print. BibTeX of the papers is in `docs/references.bib`. `python docs/zoo.py` writes
this page.

```python
{start}

```

{cards}
"""


def cards() -> list[dict[str, Any]]:
    """Returns the cards of docs/zoo.toml."""
    return tomllib.loads((HERE / "zoo.toml").read_text(encoding="utf-8"))["card"]


def instances() -> dict[str, Any]:
    """Returns the names that the first example of the page defines."""
    names: dict[str, Any] = {}
    exec("\n".join(line[4:] for line in START.splitlines()), names)
    return names


def page() -> str:
    """Returns the text of docs/zoo.md."""
    names, rows = instances(), {row.name: row for row in board.rows()}
    parts = []
    for family, found in itertools.groupby(cards(), key=lambda card: card["family"]):
        members = list(found)
        parts += [f"## {family}\n", "| algorithm | source | guarantee | benchmark |", "|---|---|---|---|"]
        parts += [_row(card, names, rows) for card in members]
        parts += ["", *(_card(card, names) for card in members)]
    return PAGE.format(start=START, cards="\n".join(parts).strip())


def _row(card: dict[str, Any], names: dict[str, Any], rows: dict[str, Any]) -> str:
    claim = names["claim"](eval(card["code"], names), names[card["env"]]).partition(":")[0]
    played = [f"`{name}` {rows[name].score:.3f}" for name in card.get("rows", ())[:1]]
    return f"| [{card['title']}](#{_anchor(card['title'])}) | {card['source']} | {claim} | {''.join(played) or '-'} |"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _card(card: dict[str, Any], names: dict[str, Any]) -> str:
    algo, env = eval(card["code"], names), names[card["env"]]
    proved = algo.certificate(env.spec, horizon=100_000 if card["env"] == "arms" else 2_000)
    about = card["about"]
    if proved.claim != "certified" and proved.epsilon is not None:
        about += f" Not certified: {proved.reason.partition(';')[0]}."
    lines = [f"### {card['title']}", "", about, "", "```python", f">>> claim({card['code']}, {card['env']})",
             repr(names["claim"](algo, env)), "", "```", ""]  # fmt: skip
    if letters := card.get("letters"):
        lines += [", ".join(f"{letter}: `{name}`" for letter, name in letters.items()) + ".", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    (HERE / "zoo.md").write_text(page(), encoding="utf-8")
