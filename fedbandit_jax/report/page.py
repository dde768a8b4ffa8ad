"""A self-contained HTML page about results: figures, tables, certificates, provenance and configuration."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.report import html, plotting, tables
from fedbandit_jax.report.folders import Found, Section
from fedbandit_jax.report.html import tag
from fedbandit_jax.report.plotting.curves import varied, words
from fedbandit_jax.report.plotting.figure import places, svg
from fedbandit_jax.report.result import Result

CURVES = 16  # most algorithms in a figure of curves


def write(found: Found, path: Path, *, title: str) -> None:
    """Writes a page about results atomically."""
    html.write(path, title, list(_body(found)))


def _body(found: Found) -> Iterator[ET.Element]:
    if len(found.sections) > 1:
        links = (tag("li", tag("a", str(one.path), href=f"#s{i}")) for i, one in enumerate(found.sections))
        yield tag("nav", tag("ul", *links))
    if found.refused:
        yield tag("h2", f"{len(found.refused)} files were refused")
        yield html.table([("file", "reason"), *((str(path), why) for path, why in found.refused)], "refused")
    for i, one in enumerate(found.sections):
        yield tag("section", *_section(one), id=f"s{i}")


def _section(one: Section) -> Iterator[ET.Element]:
    result = one.result
    yield tag("h2", str(one.path))
    yield tag("p", tables.size(result), "; ", places(result))
    for text in tables.bases(result):
        yield tag("p", text)
    for text in (*one.notes, *tables.doubts(result)):
        yield tag("p", text, **{"class": "refused"})
    drawn = ((title, html.drawing(svg(figure), title)) for title, figure in _figures(result))
    figures = (tag("figure", tag("figcaption", title), image) for title, image in drawn)
    yield tag("div", *figures, **{"class": "figures"})
    if len(result) > CURVES:
        advice = f"Curves of {len(result)} algorithms do not fit into one figure; choose some, as in "
        yield tag("p", advice, tag("code", "fb.plotting.regret(result.sel(algorithm=...))"))
    for i, (title, rows) in enumerate(tables.tables(result)):
        if title:
            yield tag("h3", title.removesuffix(":"))
        yield html.table(_with_coordinates(result, rows) if i == 0 else rows, "")
    yield tag("h3", "Certificates")
    whose: dict[Certificate, list[str]] = {}
    for label, certificate in result.certificates.items():
        whose.setdefault(certificate, []).append(label)
    for certificate, labels in whose.items():
        yield html.certificate(certificate, labels)
    yield tag("h3", "What made it")
    yield from _origin(result)


def _figures(result: Result) -> Iterator[tuple[str, Figure]]:
    if len(result) <= CURVES:
        yield "cumulative regret", plotting.regret(result, time_average=False)
        yield "time-average regret", plotting.regret(result)
        for name in result.gauges:
            yield name, plotting.gauge(result, name)
    for name in varied(result):
        if name != "algorithm":
            yield f"regret against {name}", plotting.against(result, name)
    proved = [one.epsilon_exact for one in result.certificates.values() if one.epsilon_exact]
    if sum(epsilon < float("inf") for epsilon in proved) > 1:
        yield "privacy-regret frontier", plotting.privacy_frontier(result)
    if len(result) > 1:
        yield "communication-regret frontier", plotting.communication_frontier(result)


def _with_coordinates(result: Result, rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    bare = all(point["algorithm"] == label for label, point in result.coordinates.items())  # in the label
    names = [name for name in varied(result) if not (bare and name == "algorithm")]
    texts = [words(result, name) for name in names]
    extra = [[each.get(label, "-") for each in texts] for label in result]
    (_, *header), *body = rows
    asked = [f"{name} asked" if name in header else name for name in names]  # besides the value achieved
    return [("label", *asked, *header), *((row[0], *its, *row[1:]) for row, its in zip(body, extra))]


def _origin(result: Result) -> Iterator[ET.Element]:
    if command := result.provenance.get("command"):
        yield tag("p", "The command: ", tag("code", str(command)))
    yield tag("details", tag("summary", "Configuration"), tag("pre", json.dumps(result.config, indent=1)))
    rows = [("provenance", ""), *((name, str(value)) for name, value in result.provenance.items())]
    yield tag("details", tag("summary", "Provenance"), html.table(rows, ""))
