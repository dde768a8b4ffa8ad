"""Results as text tables, and as a frame of pandas with the parameters of a sweep as columns."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedbandit_jax.certificate import page
from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.report.measured import CURVES, Measured
from fedbandit_jax.status import Status


class Difference(NamedTuple):
    """Final regret of an algorithm minus the baseline's, paired by seed. A single seed has no error."""

    baseline: str
    mean: float
    error: float  # standard error of the mean
    low: float  # ends of a 95 % interval for the mean, by Student's t
    high: float


def compare(result: Measured, baseline: str | None = None) -> dict[str, Difference]:
    """Returns label -> its final regret minus the baseline's, paired by seed, with a 95 % interval.

    `summary(baseline)` prints these differences as a table.

    Args:
        baseline: as in `summary`.
    """
    from scipy.special import stdtrit

    if baseline is not None:
        validate.one_of("baseline", baseline, result.labels)
    places: dict[str, list[str]] = {}  # environment -> its labels, beginning with the baseline
    for label in sorted(result.labels, key=lambda label: label != baseline):
        places.setdefault(json.dumps(result.config["environments"][label], sort_keys=True), []).append(label)
    found, quantile = {}, float(stdtrit(result.status.shape[-1] - 1, 0.975))
    for first, *others in places.values():
        for label in others:
            mean, error = mean_error(result[label].regret[:, -1] - result[first].regret[:, -1])
            found[label] = Difference(first, mean, error, mean - quantile * error, mean + quantile * error)
    return found


def report(result: Measured, format: str = "markdown") -> str:
    """Formats a page for a reviewer of privacy: instance, algorithm and proof of every label.

    Args:
        format: "markdown" or "html" (a whole file).
    """
    made, config, sections = result.provenance, result.config, []
    names = [name for name in ("fedbandit_jax", "git_commit", "jax", "numpy") if made.get(name)]
    versions = ", ".join(f"{name} {made[name]}" for name in names)
    for label, certificate in result.certificates.items():
        about = [("instance", f"{size(result[label])}; {json.dumps(config['environments'][label])}")]
        about += [("algorithm", json.dumps(config["algorithms"][label])), ("versions", versions)]
        sections += [(label, [*about, ("date", str(made.get("date", "unknown")))]), *certificate.sections()]
    return page("Privacy report", sections, format)


def summary(result: Measured, baseline: str | None = None) -> str:
    """Formats final regret, communication and claims as tables, with regret differences paired by seed.

    Differences are from the baseline, with a 95 % interval for their mean.

    Args:
        baseline: a label, for the other labels of its environment. Default, and in other environments: the first label
            there. The heading says which it is.
    """
    text = [size(result), *bases(result)]
    for i, (title, rows) in enumerate(tables(result, baseline)):
        text += [""] * (i > 0) + [title] * (title != "") + [aligned(rows)]
    if found := doubts(result):
        text += ["", *found]
    return "\n".join(text)


def size(result: Measured) -> str:
    """Formats the numbers of agents, rounds and seeds."""
    horizon, seeds = int(result.rounds[-1]), result.status.shape[-1]
    many = f"T = {horizon:,} rounds, {seeds} seed{'s' * (seeds != 1)}"
    return ", ".join((*dict.fromkeys(_who(result[label]) for label in result), many))


def bases(result: Measured) -> list[str]:
    """Returns the `basis` of each environment with answers of a model, a sentence each."""
    worlds = (result.config["environments"][label] for label in result.labels)
    return list(dict.fromkeys(world["spec"]["basis"] for world in worlds if world["spec"].get("basis")))


def tables(result: Measured, baseline: str | None = None) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Makes tables of regret, communication and claims; counts; gauges; and paired differences.

    Each is a title and rows of formatted numbers. `rows[0]` is the header, and the first cell of a row its label.
    """
    one = {label: result[label] for label in result.labels}
    found = [("", _rows(one))]
    for heading, kind, digits in (("counted, mean", "counts", "g"), ("at T, mean", "gauges", ".3g")):
        if names := getattr(result, kind):
            rows = [(heading, *names)]
            for label, its in one.items():
                means = (curve[:, -1].mean() for curve in getattr(its, kind).values())
                rows.append((label, *("-" if math.isnan(mean) else f"{mean:{digits}}" for mean in means)))
            bounds = [its.certificate.wrap_probability for its in one.values()]
            if kind == "counts" and any(bound is not None for bound in bounds):
                shown = ["allowed per decoding", *("-" if bound is None else f"{bound:.3g}" for bound in bounds)]
                rows = [(*row, cell) for row, cell in zip(rows, shown)]
            found.append(("", rows))
    for first, pairs in itertools.groupby(compare(result, baseline).items(), lambda pair: pair[1].baseline):
        rows = [(f"minus {first}", "mean", "s.e.", "95 % interval")]
        for label, its in pairs:
            interval = "-" if math.isnan(its.low) else f"[{its.low:+.1f}, {its.high:+.1f}]"
            rows.append((label, f"{its.mean:+.1f}", _one_digit(its.error), interval))
        whose = "baseline" if first == baseline else "first label" + " there" * (len(rows) < len(one))
        found.append((f"Final regret, paired by seed, minus the {whose}:", rows))
    return found


def doubts(result: Measured) -> list[str]:
    """Warns of runs with status bits, a line each."""
    failed = int((result.status != 0).sum())
    if not failed:
        return []
    flags = Status(int(np.bitwise_or.reduce(result.status, axis=None)))
    return [f"(!) {failed} runs have status bits set; do not trust their regret.", *flags.sentences()]


def _rows(one: dict[str, Measured]) -> list[tuple[str, ...]]:
    rows = [("algorithm", "regret at T", "s.e.", "per visit", "syncs", "MB sent", "claim", "epsilon", "delta")]
    for label, result in one.items():
        mean, error = mean_error(result.regret[:, -1])
        certificate = result.certificate
        private = certificate.epsilon_exact is not None
        asked = certificate.epsilon is not None or certificate.claim != "none" or certificate.user_defined
        rows.append(
            (
                label + ("" if (result.status == 0).all() else " (!)"),
                f"{mean:.1f}",
                _one_digit(error),
                f"{mean / (result.spec['n_agents'] * int(result.rounds[-1])):.5f}",
                f"{result.communication['rounds'][:, -1].mean().round(1):g}",
                f"{result.communication['bits'][:, -1].mean() / 8e6:.2f}",
                certificate.claim if asked else "not private",
                f"{certificate.epsilon_exact:.4g}" if private else "-",
                f"{certificate.delta:g}" if private else "-",
            )
        )
    return rows


def _who(result: Measured) -> str:
    spec = result.spec
    agents = f"{spec['n_agents']} agent{'s' * (spec['n_agents'] > 1)}"
    if spec.get("n_users"):  # at the servers of a clustering, or at silos
        servers = f"{spec['n_servers']} server{'s' * (spec['n_servers'] > 1)}"
        return f"{spec['n_users']:,} users {f'of {agents}' if spec['n_agents'] > 1 else f'on {servers}'}"
    return agents


def mean_error(values: np.ndarray) -> tuple[float, float]:
    """Computes the mean of values and its standard error, NaN for one value."""
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(error)


def _one_digit(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Formats rows with aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:]))]) for row in rows
    )


def to_pandas(result: Measured) -> Any:
    """Converts curves to a `pandas.DataFrame` with a row for every algorithm, seed and recorded round.

    The columns "algorithm" and "label" are followed by the parameters of the sweep, None for algorithms without one.
    Then come "certificate_claim", and "certificate_epsilon" (the exact one) and "certificate_delta", NaN without noise.
    The rest are "seed", "round", "regret", "status", communication and other counters, but no records. It needs the
    extra `data`.
    """
    pandas = require("pandas", "data")

    points, n_seeds, n_records = result.coordinates, len(result.seeds), len(result.rounds)
    each = n_seeds * n_records
    columns: dict[str, Any] = {"label": np.repeat(np.array(result.labels, object), each)}
    for name in dict.fromkeys(name for point in points.values() for name in point):
        values = [_plain(point[name]) if name in point else None for point in points.values()]
        columns[name] = np.repeat(np.array(values, object), each)
    proofs = result.certificates.values()
    columns["certificate_claim"] = np.repeat(np.array([one.claim for one in proofs], object), each)
    for name, values in (("epsilon", [p.epsilon_exact for p in proofs]), ("delta", [p.delta for p in proofs])):
        known = [math.nan if one.epsilon_exact is None else value for one, value in zip(proofs, values)]
        columns[f"certificate_{name}"] = np.repeat(np.array(known, float), each)
    columns["seed"] = np.tile(np.repeat(result.seeds, n_records), len(points))
    columns["round"] = np.tile(result.rounds, len(points) * n_seeds)
    columns |= {name: array.ravel() for name, array in _curves(result)}
    columns["status"] = np.repeat(result.status.ravel(), n_records)
    return pandas.DataFrame(columns).infer_objects()


def _curves(result: Measured) -> Iterator[tuple[str, np.ndarray]]:
    yield "regret", result.regret
    for kind in CURVES:
        for name, curve in getattr(result, kind).items():
            yield f"{kind}_{name}", curve


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else json.dumps(value)
