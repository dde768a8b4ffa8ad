"""Results with named axes, for xarray and pandas: the parameters of a sweep become dimensions, or columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit_jax.report.files import CURVES

if TYPE_CHECKING:
    from fedbandit_jax.report.result import Result

NOT_RUN = -1  # the status of what was not run


def to_xarray(result: Result) -> Any:
    """Returns what `Result.to_xarray` promises."""
    import xarray

    points = list(result.coordinates.values())
    axes = {
        name: values
        for name in dict.fromkeys(name for point in points for name in point)
        if len(values := _values(points, name)) > 1
    }
    own = tuple(len(values) for values in axes.values())
    places = [
        np.ix_(*([values.index(point[name])] if name in point else range(len(values)) for name, values in axes.items()))
        for point in points
    ]

    def spread(array: np.ndarray, empty: float) -> np.ndarray:
        rows = array if result.regret.ndim == 3 else array[None]
        kind = np.result_type(array.dtype, np.float64) if np.isnan(empty) else array.dtype
        found = np.full((*own, *rows.shape[1:]), empty, kind)
        for place, row in zip(places, rows):
            found[place] = row
        return found

    dims = (*axes, "seed", "round")
    data: dict[str, Any] = {name: (dims, spread(array, np.nan)) for name, array in _curves(result)}
    data["status"] = (dims[:-1], spread(result.status, NOT_RUN))
    coords = {name: [_plain(value) for value in values] for name, values in axes.items()}
    coords |= {"round": result.rounds, "seed": result.seeds}
    for name, array in result.records.items():
        name, rounds = f"record_{name}", result.record_rounds[name]
        when = "round" if np.array_equal(rounds, result.rounds) else f"{name}_round"
        inner = (f"{name}_{axis}" for axis in range(array.ndim - result.regret.ndim))
        data[name] = ((*dims[:-1], when, *inner), spread(array, np.nan))
        coords[when] = rounds
    return xarray.Dataset(data, coords, attrs={"config": json.dumps(result.config)})


def to_pandas(result: Result) -> Any:
    """Returns what `Result.to_pandas` promises."""
    import pandas

    points, n_seeds, n_records = result.coordinates, len(result.seeds), len(result.rounds)
    each = n_seeds * n_records
    columns: dict[str, Any] = {"label": np.repeat(np.array(result.labels, object), each)}
    for name in dict.fromkeys(name for point in points.values() for name in point):
        values = [_plain(point[name]) if name in point else None for point in points.values()]
        columns[name] = np.repeat(np.array([*values, None], object)[:-1], each)
    columns["seed"] = np.tile(np.repeat(result.seeds, n_records), len(points))
    columns["round"] = np.tile(result.rounds, len(points) * n_seeds)
    columns |= {name: array.ravel() for name, array in _curves(result)}
    columns["status"] = np.repeat(result.status.ravel(), n_records)
    return pandas.DataFrame(columns).infer_objects()


def _curves(result: Result) -> Iterator[tuple[str, np.ndarray]]:
    yield "regret", result.regret
    for kind in CURVES:
        for name, curve in getattr(result, kind).items():
            yield f"{kind}_{name}", curve


def _values(points: list[dict[str, Any]], name: str) -> list[Any]:
    values: list[Any] = []
    for point in points:
        if name in point and point[name] not in values:
            values.append(point[name])
    return values


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else json.dumps(value)
