"""The model of a log: fitted to a share of the rows of every silo, and measured on the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit

from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data import fit as fits
from fedbandit_jax.data.columns import Column, Columns, levels_of
from fedbandit_jax.data.design import JointFeatures
from fedbandit_jax.data.fit import CHUNK


def split(
    place: np.ndarray, fit_share: float, seed: int, user: np.ndarray | None = None, time: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Splits rows into those that fit the model and those that are replayed, at least one in every silo.

    Without users, a share of every silo's rows fits. With users, a share of the users fits, each with all their rows,
    so the others are unseen. If all users of a silo were drawn, its last one is replayed. A silo with a single user
    splits that user's rows between both halves.

    Args:
        place: silos (N,), 0 ... M - 1.
        fit_share: the share.
        seed: seed of the draw.
        user: identified users (N,), 0 ... n - 1, if any.
        time: times (N,). The earliest rows, or users, fit the model, with ties broken by the draw.
    """
    rng = np.random.default_rng(seed)
    draws = rng.random(len(place))
    if time is not None:
        draws = np.argsort(np.lexsort((draws, time)))  # ranks
    fitted = _share(draws, place, fit_share)
    if user is not None:
        lot = rng.permutation(user.max() + 1)
        if time is not None:
            came = np.full(len(lot), np.inf)
            np.minimum.at(came, user, time)
            lot = np.argsort(np.lexsort((lot, came)))
        of_silo = np.unique(np.stack([place, user]), axis=1)
        crowd = np.bincount(of_silo[0])  # users of every silo
        last = np.full(len(crowd), -1)
        np.maximum.at(last, of_silo[0], lot[of_silo[1]])
        drawn = lot < round(fit_share * len(lot))
        emptied = (crowd > 1) & (last < round(fit_share * len(lot)))
        drawn[np.isin(lot, last[emptied])] = False
        fitted = np.where(crowd[place] > 1, drawn[user], fitted)
    others = np.flatnonzero(~fitted)
    return np.flatnonzero(fitted), others[np.argsort(place[others], kind="stable")]


def _share(draws: np.ndarray, place: np.ndarray, share: float) -> np.ndarray:
    """Marks this share of every silo's rows (N,), the ones with the least draws, all but one at most."""
    order, counts = np.lexsort((draws, place)), np.bincount(place)
    rank = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.empty(len(place), bool)
    found[order] = rank < np.repeat(np.minimum(np.round(share * counts), counts - 1), counts)
    return found


def check_rows(design: JointFeatures, arm: Column, played: np.ndarray, columns: Columns) -> None:
    """Raises `ValueError` if fitted rows, or those of an arm, are fewer than the coefficients."""
    counts, need = np.bincount(played, minlength=len(design.arms)), design.dim
    if design.intercept is not None:
        need = design.users.rows.shape[1]
        if counts.min() < need:
            level = levels_of(arm)[int(np.argmin(counts))]
            must = f"must have at least {need} rows of every arm to fit the model, one for each coefficient"
            got = f"{counts.min()} of {level!r} in column {arm.name!r} of {columns.title}"
            raise BadValue("source", must, counts.min(), got=got)
    if len(played) < need:
        got = f"{len(played)} of the {columns.n_rows} rows of {columns.title}"
        raise BadValue("source", f"must have at least d = {need} rows to fit the model", len(played), got=got)


def fitted(model: str, design: JointFeatures, rows: np.ndarray, played: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Fits the parameter theta (d,) of a model to these rows."""

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(rows), CHUNK):
            some = rows[start : start + CHUNK]
            yield design.of(some, played[some]), rewards[some]

    return (fits.least_squares if model == "linear" else fits.logistic)(batches, design.dim)


def measured(
    model: str,
    design: JointFeatures,
    theta: np.ndarray,
    rows: np.ndarray,
    played: np.ndarray,
    rewards: np.ndarray,
    overall: float,
) -> dict[str, Any]:
    """Returns the fields of a `Fit` about the replayed rows (n,); `overall` is the mean reward of the fitted rows."""
    means, beyond, best, uniform = [], 0, 0.0, 0.0
    chunk = max(1, CHUNK * 8 // len(design.arms))
    for start in range(0, len(rows), chunk):
        some = rows[start : start + chunk]
        scores = design.scores(some, theta)
        every = expit(scores) if model == "logistic" else np.clip(scores, 0, 1)
        beyond += 0 if model == "logistic" else int((np.abs(scores - every) > 1e-6).sum())
        every = np.round(every, fits.DIGITS)
        best += float(every.max(1).sum())
        uniform += float(every.mean(1).sum())
        means.append(every[np.arange(len(some)), played[some]])
    mean, seen, n = np.concatenate(means), rewards[rows], len(rows)
    about = dict(
        explained=fits.explained(model, seen, mean, overall),
        noise_std=float(np.sqrt(((seen - mean) ** 2).mean())),
        clipped=beyond / (n * len(design.arms)),
        theta_norm=float(np.linalg.norm(theta)),
        logged=float(seen.mean()),
        uniform=uniform / n,
        best=best / n,
    )
    about = {name: round(value, fits.DIGITS) for name, value in about.items()}
    return dict(replayed_rows=n, calibration=fits.calibration(seen, mean), **about)
