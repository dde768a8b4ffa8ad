"""Parts of self-contained HTML pages: trees of elements with escaped text.

A page has no external references, and is readable without JavaScript. That only sorts and filters tables.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from fedbandit_jax.certificate import CLAIMS, Certificate
from fedbandit_jax.core.files import write_atomic

PLAIN = " =:/,;'()!*+@?$[]|~"  # characters that stay as they are in the address of an image


def write(path: Path, title: str, body: Sequence[ET.Element], *, style: str = "", script: str = "") -> None:
    """Writes a page atomically, with additional `style` and `script`."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="generator", content="fedbandit_jax"),
        tag("title", title),
        tag("style", _asset("page.css") + style),
    )
    head.append(tag("meta", name="viewport", content="width=device-width, initial-scale=1"))
    whole = tag(
        "html", head, tag("body", tag("h1", title), *body, tag("script", _asset("page.js") + script)), lang="en"
    )
    text = "<!DOCTYPE html>\n" + ET.tostring(whole, encoding="unicode", method="html") + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: file.write(text.encode()))


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def tag(name: str, /, *content: str | ET.Element, **attributes: str) -> ET.Element:
    """Makes an element with text, other elements and attributes."""
    element = ET.Element(name, attributes)
    last: ET.Element | None = None
    for part in content:
        if isinstance(part, ET.Element):
            element.append(part)
            last = part
        elif last is None:
            element.text = (element.text or "") + part
        else:
            last.tail = (last.tail or "") + part
    return element


def table(rows: Sequence[tuple[str, ...]], kind: str) -> ET.Element:
    """Makes a sortable table; `rows[0]` is its header, `kind` its class."""
    header, *body = rows
    head = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in header)))
    made = tag("tbody", *(tag("tr", *_cells(row)) for row in body))
    return tag("div", tag("table", head, made, **{"class": f"sortable {kind}".strip()}), **{"class": "wide"})


def _cells(row: Sequence[str]) -> Iterator[ET.Element]:
    private = row[-2:] != ("-", "-")  # epsilon and delta
    for text in row:
        kind = f"claim {text}" if text in CLAIMS and private else "words" if len(text) > 40 else ""
        yield tag("td", text, **({"class": kind} if kind else {}))


def certificate(one: Certificate, labels: Sequence[str]) -> ET.Element:
    """Makes a foldable certificate of these algorithms."""
    asked = one.claim if one.epsilon is not None or one.claim != "none" else ""  # no colour without a requested epsilon
    claim = tag("span", one.claim, **{"class": f"claim {asked}".strip()})
    fields = tag("details", tag("summary", "all fields"), tag("pre", json.dumps(one.to_json(), indent=1)))
    return tag("details", tag("summary", ", ".join(labels), ": ", claim), tag("pre", str(one)), fields)


def drawing(text: str, title: str) -> ET.Element:
    """Embeds an SVG image as a separate document. It loads nothing and has its own ids; curves in 1 / 100 pt."""
    text = re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)
    return tag("img", src=f"data:image/svg+xml,{quote(' '.join(text.split()), safe=PLAIN)}", alt=title)
