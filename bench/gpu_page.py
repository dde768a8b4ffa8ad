"""Results of `gpu.py` from its rows: values against their targets, and the page."""

from pathlib import Path
from typing import Any

import measure

PAGE = Path(__file__).with_name("GPU.md")
HEAD = """# Speed on a GPU

`python bench/gpu.py` wrote this page, and its help explains the parts. A size is a number of agents, of returning users
(clusters) or of users (arms). Rates are agent-rounds a second, and users a second for arms and clusters.

"""
TARGETS: dict[str, dict[str, float]] = {
    "A, M x seeds >= 25,000: share of the arithmetic roofline": dict(least=0.45),
    "A, M x seeds >= 25,000: M ar/s": dict(least=100.0),
    "M = 100,000, T = 10,000, 25 seeds: seconds": dict(most=300.0),
    "regret against a CPU: largest |z|": dict(most=3.0),
    "x' V^-1 x against float64: largest relative error": dict(most=1e-4),
    "results that differ between two runs": dict(most=0.0),
}


def ratios(rows: list[dict[str, Any]], smoke: bool) -> dict[str, Any]:
    """Returns values by name, each with its target, and whether that is met, or None."""

    def of(part: str, **wanted: Any) -> list[dict[str, Any]]:
        fine = [row for row in rows if row["part"] == part and "wrong" not in row]
        return [row for row in fine if all(row.get(name) == value for name, value in wanted.items())]

    values: dict[str, float | None] = {}
    large = [row for row in of("rates", mode="A") if row["size"] * row["seeds"] >= 25_000]
    if large:
        values["A, M x seeds >= 25,000: M ar/s"] = min(row["rate"] for row in large) / 1e6
        if all(row["roofline"] for row in large):
            values["A, M x seeds >= 25,000: share of the arithmetic roofline"] = min(row["roofline"] for row in large)
    for row in of("rates", mode="A", size=100_000, seeds=25):
        values["M = 100,000, T = 10,000, 25 seeds: seconds"] = 1e5 * 1e4 * 25 / row["rate"]
    compared = [row for row in of("agreement") if "z" in row]
    if compared:
        values["regret against a CPU: largest |z|"] = max(abs(row["z"]) for row in compared)
        values["results that differ between two runs"] = float(sum(not row["twice_equal"] for row in compared))
    for row in of("latency"):
        values["A, one seed: microseconds of a round"] = row["round_us"]
        values["A, one seed: milliseconds of a call beside its rounds"] = row["call_ms"]
    spilled = [row["spills"] for row in of("programs") if "spills" in row]
    if spilled:
        values["bytes spilled by a thread of our kernels, at most"] = float(max(spilled))
    for row in of("inverse"):
        values["x' V^-1 x against float64: largest relative error"] = row["inverse"]
    pair = of("stored", fused=True), of("stored", fused=False)
    if all(pair):
        values["A: fused / stored"] = pair[0][0]["rate"] / pair[1][0]["rate"]
    for mode in ("A", "clusters"):
        rate = {row["command_buffers"]: row["rate"] for row in of("command buffers", mode=mode)}
        for one, other in (("on", "off"), ("while", "on")):
            if {one, other} <= set(rate):
                values[f"{mode}: command buffers {one} / {other}"] = rate[one] / rate[other]
    for n_seeds in sorted({row["seeds"] for row in of("host")}):
        theirs = {row["size"]: row["rate"] for row in of("host", seeds=n_seeds)}
        fastest = [theirs.get(row["size"], max(theirs.values())) for row in of("rates", mode="A", seeds=n_seeds)]
        wins = [r["size"] for r, cpu in zip(of("rates", mode="A", seeds=n_seeds), fastest) if r["rate"] > cpu]
        values[f"A, seeds={n_seeds}: smallest M at which this device beats this host's CPU"] = min(wins, default=None)
    judged = {name: not (smoke and "M ar/s" in name) for name in values}
    return {name: measure.verdict(one, **TARGETS.get(name, {}), judged=judged[name]) for name, one in values.items()}


def shown(row: dict[str, Any]) -> str:
    """Returns a row as text."""

    def number(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return "  ".join(f"{name}={number(value)}" for name, value in row.items() if value is not None)


def page(rows: list[dict[str, Any]], found: dict[str, Any], date: str) -> str:
    """Returns the page of results: a table of every part, and the values against their targets."""
    device = rows[0]
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows[1:]:
        parts.setdefault("wrong" if "wrong" in row else row["part"], []).append(row)
    lines = [f"{date}, {shown({name: value for name, value in device.items() if value != '' and name != 'part'})}"]
    for part, these in parts.items():
        names = dict.fromkeys(name for row in these for name, value in row.items() if value is not None)
        names = [name for name in names if part == "wrong" or name != "part"]
        lines += ["", part, *measure.table([{name: row.get(name) for name in names} for row in these]).splitlines()]
    return HEAD + "".join(f"    {line}".rstrip() + "\n" for line in [*lines, "", *measure.verdicts(found).splitlines()])
