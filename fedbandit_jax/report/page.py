"""One self-contained HTML page about results: figures, tables, certificates, provenance and configuration.

The page is a tree of elements, so that whatever a label or a path contains is text on it. It refers to nothing outside
itself, and can be read without JavaScript, which only sorts tables.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedbandit_jax.certificate import CLAIMS, Certificate
from fedbandit_jax.core.files import write_atomic
from fedbandit_jax.report import plotting, tables
from fedbandit_jax.report.folders import Found, Section
from fedbandit_jax.report.plotting.curves import varied, word
from fedbandit_jax.report.plotting.figure import places, svg
from fedbandit_jax.report.result import Result

CURVES = 16  # most algorithms of which one figure shows the curves


def write(found: Found, path: Path, *, title: str) -> None:
    """Writes the page about what was found, complete or not at all."""
    text = "<!DOCTYPE html>\n" + ET.tostring(_page(found, title), encoding="unicode", method="html") + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: file.write(text.encode()))


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def _page(found: Found, title: str) -> ET.Element:
    head = _tag("head", _tag("meta", charset="utf-8"), _tag("title", title), _tag("style", _asset("page.css")))
    head.append(_tag("meta", name="viewport", content="width=device-width, initial-scale=1"))
    body = _tag("body", _tag("h1", title))
    if len(found.sections) > 1:
        links = (_tag("li", _tag("a", one.name, href=f"#s{i}")) for i, one in enumerate(found.sections))
        body.append(_tag("nav", _tag("ul", *links)))
    if found.refused:
        body.append(_tag("h2", f"{len(found.refused)} files were refused"))
        body.append(_table([("file", "reason"), *((str(path), why) for path, why in found.refused)], "refused"))
    for i, one in enumerate(found.sections):
        body.append(_tag("section", *_section(one, f"s{i}"), id=f"s{i}"))
    body.append(_tag("script", _asset("page.js")))
    return _tag("html", head, body, lang="en")


def _section(one: Section, name: str) -> Iterator[ET.Element]:
    """The elements about one result; `name` is what its ids begin with."""
    result = one.result
    yield _tag("h2", one.name)
    yield _tag("p", tables.size(result), "; ", places(result))
    for text in tables.bases(result):
        yield _tag("p", text)
    for text in (*one.notes, *tables.doubts(result)):
        yield _tag("p", text, **{"class": "refused"})
    figures = []
    for i, (title, figure) in enumerate(_figures(result)):
        drawn = _inline(svg(figure), f"{name}-f{i}-", title)
        figures.append(_tag("figure", _tag("figcaption", title), drawn))
    yield _tag("div", *figures, **{"class": "figures"})
    if len(result) > CURVES:
        advice = f"Curves of {len(result)} algorithms do not fit into one figure; choose some, as in "
        yield _tag("p", advice, _tag("code", "fb.plotting.regret(result.sel(algorithm=...))"))
    for i, (title, rows) in enumerate(tables.tables(result)):
        if title:
            yield _tag("h3", title.removesuffix(":"))
        yield _table(_with_coordinates(result, rows) if i == 0 else rows, "")
    yield _tag("h3", "Certificates")
    whose: dict[Certificate, list[str]] = {}
    for label, certificate in result.certificates.items():
        whose.setdefault(certificate, []).append(label)
    for certificate, labels in whose.items():
        yield _certificate(certificate, labels)
    yield _tag("h3", "What made it")
    yield from _origin(one)


def _figures(result: Result) -> Iterator[tuple[str, Figure]]:
    if len(result) <= CURVES:
        yield "cumulative regret", plotting.regret(result, time_average=False)
        yield "time-average regret", plotting.regret(result)
        for name in result.gauges:
            yield name, plotting.gauge(result, name)
    for name in varied(result):
        if name != "algorithm":
            yield f"regret against {name}", plotting.against(result, name)
    proved = [one.epsilon_exact for one in result.certificates.values() if one.epsilon_exact is not None]
    if sum(epsilon < float("inf") for epsilon in proved) > 1:
        yield "privacy-regret frontier", plotting.privacy_frontier(result)
    if len(result) > 1:
        yield "communication-regret frontier", plotting.communication_frontier(result)


def _with_coordinates(result: Result, rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    points = result.coordinates.values()
    bare = all(point["algorithm"] == label for label, point in result.coordinates.items())  # which the label says
    names = [name for name in varied(result) if not (bare and name == "algorithm")]
    extra = [[word(point[name]) if name in point else "-" for name in names] for point in points]
    (_, *header), *body = rows
    asked = [f"{name} asked" if name in header else name for name in names]  # the others are what was given
    return [("label", *asked, *header), *((row[0], *its, *row[1:]) for row, its in zip(body, extra))]


def _table(rows: Sequence[tuple[str, ...]], kind: str) -> ET.Element:
    """A table that can be sorted by every column; `rows[0]` is its header."""
    header, *body = rows
    head = _tag("thead", _tag("tr", *(_tag("th", cell, scope="col") for cell in header)))
    made = _tag("tbody", *(_tag("tr", *_cells(row)) for row in body))
    return _tag("div", _tag("table", head, made, **{"class": f"sortable {kind}".strip()}), **{"class": "wide"})


def _cells(row: Sequence[str]) -> Iterator[ET.Element]:
    private = row[-2:] != ("-", "-")  # epsilon and delta, where there is a claim
    for text in row:
        kind = f"claim {text}" if text in CLAIMS and private else "words" if len(text) > 40 else ""
        yield _tag("td", text, **({"class": kind} if kind else {}))


def _certificate(one: Certificate, labels: Sequence[str]) -> ET.Element:
    asked = one.claim if one.epsilon is not None or one.claim != "none" else ""  # who asks for nothing is not accused
    claim = _tag("span", one.claim, **{"class": f"claim {asked}".strip()})
    fields = _tag("details", _tag("summary", "all fields"), _tag("pre", json.dumps(one.to_json(), indent=1)))
    return _tag("details", _tag("summary", ", ".join(labels), ": ", claim), _tag("pre", str(one)), fields)


def _origin(one: Section) -> Iterator[ET.Element]:
    result = one.result
    if command := result.provenance.get("command"):
        yield _tag("p", "The command: ", _tag("code", str(command)))
    yield _tag("details", _tag("summary", "Configuration, as code"), _tag("pre", code(result)))
    yield _tag("details", _tag("summary", "Configuration, in full"), _tag("pre", json.dumps(result.config, indent=1)))
    rows = [("provenance", ""), *((name, str(value)) for name, value in result.provenance.items())]
    yield _tag("details", _tag("summary", "Provenance"), _table(rows, ""))
    names = _tag("ul", *(_tag("li", str(path)) for path in one.files))
    yield _tag("details", _tag("summary", f"{len(one.files)} file{'s' * (len(one.files) > 1)}"), names)


def code(result: Result) -> str:
    """Environments, algorithms and options of a result in the form of code, to be read by people."""
    config, text = result.config, []
    for kind in ("environments", "algorithms"):
        made: dict[str, list[str]] = {}
        for label in result.labels:
            made.setdefault(_expression(config[kind][label]), []).append(label)
        for expression, labels in made.items():
            text += [f"# {kind.removesuffix('s')} of {', '.join(labels)}", expression, ""]
    options = {name: config[name] for name in ("horizon", "seeds", "stride", "key")}
    return "\n".join([*text, "# run with", ", ".join(f"{name}={value!r}" for name, value in options.items())])


def _expression(account: Any) -> str:
    """The account of an object as the expression that would make it.

    >>> _expression({"type": "Every", "batch": 25})
    'Every(batch=25)'
    """
    if isinstance(account, Mapping):
        parts = [f"{name}={_expression(part)}" for name, part in account.items() if name != "type"]
        return f"{account.get('type', 'dict')}({', '.join(parts)})"
    if isinstance(account, list):
        return f"[{', '.join(map(_expression, account))}]"
    return repr(account)


def _inline(text: str, prefix: str, title: str) -> ET.Element:
    """A drawing as an element of the page: its ids begin with `prefix`, and it names no other address."""
    root = ET.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in list(element.attrib):
            value = re.sub(r"url\(#", f"url(#{prefix}", element.attrib.pop(name))
            bare = name.rpartition("}")[2]
            if bare == "id":
                value = prefix + value
            elif bare == "href":
                value = f"#{prefix}{value.removeprefix('#')}"
            element.set(bare, value)
    root.set("role", "img")
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")  # as matplotlib's own style sheet, on this one
    label = ET.Element("title")
    label.text = title
    root.insert(0, label)
    return root


def _tag(name: str, /, *content: str | ET.Element, **attributes: str) -> ET.Element:
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
