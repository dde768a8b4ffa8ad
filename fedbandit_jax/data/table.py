"""Any log as an environment: rows of silo, arm and reward, perhaps with identified users."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.data import design as designs
from fedbandit_jax.data import modelling
from fedbandit_jax.data.columns import Column, Columns, Wanted, levels_of, read
from fedbandit_jax.data.design import JointFeatures
from fedbandit_jax.data.fit import Fit
from fedbandit_jax.envs._arrivals import MAX_USERS
from fedbandit_jax.envs.logged import MODELS, FittedLaw, Log, Logged
from fedbandit_jax.interfaces import Spec

MOST_ARMS = 10_000  # K


def table(
    source: Any,
    *,
    silo: str,
    arm: str,
    reward: str,
    user: str | None = None,
    features: Sequence[str] | None = None,
    arm_features: Sequence[str] | None = None,
    propensity: str | None = None,
    min_rows: int = 1,
    time: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] | None = None,
    fit_share: float = 0.5,
    model: str = "linear",
    seed: int = 0,
) -> Logged:
    """Turns a log with rows of silo, arm and reward into an environment.

    A random share `fit_share` of the rows of each silo fits a model of the reward. If users return, it is a share of
    the users with all their rows. The other rows are replayed: in every round each silo serves one of them, drawn
    uniformly, with any arm, and the model answers. So regret is with respect to the model. `env.fit`, every result and
    every figure say how well it predicts the held-out rows; `print(env.fit)` shows more. Every silo serves a user in
    every round. A silo with a single row counts as much as any other in every mean, unless `min_rows` drops it.

    Features: a user has a constant and the columns `features`, z in R^p. Without `arm_features` each arm has a separate
    block, x = (1, 0, ..., z, ..., 0) / sqrt 2 and d = 1 + K p. With `arm_features` an arm has a constant and these
    columns, w in R^q, and x has all products of an entry of z and one of w, d = p q. Numbers are standardised, clipped
    at three standard deviations, and divided by them. A text becomes one entry for each level, or one entry for two
    levels. Vectors are scaled so that the longest have norm 1, and their first entry is constant. Rewards are mapped to
    [0, 1] by the least and the largest of the table. `env.encoding` describes all this. Without `features`, or if they
    are constant in every silo, contexts are fixed and public, and certificates say so.

    Args:
        source: a path, a frame of pandas or polars, a table of pyarrow, or a mapping of names to vectors. A text file
            has a header, is in UTF-8, perhaps compressed, with commas, semicolons, tabs or bars between columns. It
            needs pandas (the extra `data`). A .parquet file needs pyarrow (the extra `parquet`).
        silo: column of silos: M distinct values.
        arm: column of played arms: K >= 2 distinct values.
        reward: column of observed rewards, numbers.
        user: column of users, if they return, perhaps to several silos. By default all are new.
        features: columns of the user known before an arm is chosen, numbers or texts; by default none.
        arm_features: columns that describe the arm, equal in all rows of an arm.
        propensity: column of the probabilities in (0, 1] of the played arms, kept in `env.log`. `env.shares` is set if
            they are the arms' shares in this table, which are estimates.
        min_rows: drops silos and arms with fewer rows, repeatedly; `env.encoding` counts them.
        time: column of numbers or dates. The earliest rows of every silo, or the first users, fit the model. By default
            they are drawn.
        decimal: decimal mark "." or "," of numbers written as text; the other one, like a space, separates thousands.
            By default it is detected, and "1,000" alone is refused.
        missing: texts of missing values, such as ["", "NA", "-999"]; rows with one in a named column are dropped. By
            default they are refused, and so are "-", "?" and a single negative number such as -999; [] accepts these.
        fit_share: share of the rows, or of the users, that fit the model, in (0, 1).
        model: "linear", least squares with means clipped to [0, 1], or "logistic", with mean 1 / (1 + exp(-<x,
            theta>)), which linear algorithms misspecify.
        seed: seed of the draw of these rows, >= 0.

    Raises:
        ValueError, TypeError: an argument or the table is invalid; the message names row, column and value. Rows of a
            file are counted with its header as row 1, other rows from 0.
        ImportError: the package that reads the file is missing.

    Example:
        >>> import numpy as np, fedbandit_jax as fb
        >>> rng = np.random.default_rng(0)
        >>> age, drug = rng.integers(20, 80, 1000), rng.choice(["new", "old"], 1000)
        >>> cured = rng.random(1000) < np.where(drug == "new", 0.8 - age / 200, 0.4)
        >>> log = {"hospital": rng.choice(["A", "B", "C"], 1000), "drug": drug, "age": age, "cured": cured}
        >>> env = fb.data.table(log, silo="hospital", arm="drug", reward="cured", features=["age"])
        >>> env.spec.n_agents, env.spec.n_arms, env.spec.dim, env.fit.replayed_rows
        (3, 2, 5, 500)
    """
    needed, optional = dict(silo=silo, arm=arm, reward=reward), dict(user=user, propensity=propensity, time=time)
    roles = needed | {role: name for role, name in optional.items() if name is not None}
    names = {role: _name(role, name) for role, name in roles.items()}
    listed = {"features": named("features", features), "arm_features": named("arm_features", arm_features)}
    _check_roles(names, listed)
    fit_share, model, seed = checked(fit_share, model, seed).values()
    min_rows = validate.integer("min_rows", min_rows, at_least=1)

    if decimal is not None:
        validate.one_of("decimal", decimal, (".", ","))
    if missing is not None:
        missing = validate.sequence("missing", missing, "texts")
        if not all(isinstance(one, str) for one in missing):
            raise BadType("missing", "must be a sequence of texts", missing)

    kinds: dict[str, Any] = dict(silo="labels", arm="labels", user="labels", time="times")
    wanted = [Wanted(name, argument, kinds.get(argument, "numbers")) for argument, name in names.items()]
    wanted += [Wanted(name, argument, "either") for argument, columns in listed.items() for name in columns]
    sized = [names["silo"], names["arm"]]
    whole = read(source, wanted, decimal, missing)
    columns = whole.without_small(sized, min_rows) if min_rows > 1 else whole
    found = {argument: columns.found[name] for argument, name in names.items()}
    _check_arms(columns, found["arm"])
    rewards, low, high = _scaled(columns, found["reward"])
    if "propensity" in found:
        _check_propensities(columns, found["propensity"])
    design = designs.make(columns, found["arm"], listed)

    place, played = found["silo"].values, found["arm"].values
    who = found["user"].values if "user" in found else None
    when = found["time"].values if "time" in found else None
    fitted, replayed = modelling.split(place, fit_share, seed, who, when)
    modelling.check_rows(design, found["arm"], played[fitted], columns)
    theta = modelling.fitted(model, design, fitted, played, rewards)

    counts = np.bincount(place[replayed], minlength=len(levels_of(found["silo"])))
    users, crossing = (None, 1) if who is None else _users(who[replayed], place[replayed])
    fit = Fit(
        model=model,
        source=columns.title,
        reward=reward,
        low=low,
        high=high,
        fitted_rows=len(fitted),
        silos=len(counts),
        sizes=(int(counts.min()), int(np.median(counts)), int(counts.max())),
        users=0 if users is None else int(users.max()) + 1,
        crossing=crossing,
        seen=0 if who is None else len(np.intersect1d(who[fitted], who[replayed])),
        arms=len(design.arms),
        dim=design.dim,
        **modelling.measured(model, design, theta, replayed, played, rewards, float(rewards[fitted].mean())),
    )
    rows, scale = design.users.rows[replayed], f"reward: ({reward} - {low:g}) / {high - low:g}"
    first = np.unique(place, return_index=True)[1][place]  # row of the same silo
    fixed = all(bool((one == one[first]).all()) for one in design.users.rows.T)
    two = np.isin(rewards, (0, 1)).all()
    return Logged(
        rows=rows,
        arms=design.arms,
        starts=(np.cumsum(counts) - counts).astype(np.int32),
        counts=counts.astype(np.int32),
        users=users,
        theta=theta.astype(np.float32),
        rewards=FittedLaw(noise_std=1.0 if two else np.float32(fit.noise_std), model=model),
        log=Log(
            columns.rows[replayed].astype(np.int32),
            played[replayed].astype(np.int32),
            rewards[replayed].astype(np.float32),
            found["propensity"].values[replayed].astype(np.float32) if "propensity" in found else None,
        ),
        intercept=design.intercept,
        encoding="\n".join([*_left_out(whole, columns, sized, min_rows), *design.how, scale, *_rows(columns, time)]),
        fit=fit,
        spec=_spec(fit, design, rows, fixed_contexts=fixed),
        shares="propensity" in found and _are_shares(place, played, found["propensity"].values),
    )


def checked(fit_share: Any, model: Any, seed: Any) -> dict[str, Any]:
    """Checks the options of a fit, and returns them by name."""
    return dict(
        fit_share=validate.probability("fit_share", fit_share),
        model=validate.one_of("model", model, MODELS),
        seed=validate.integer("seed", seed, at_least=0, at_most=2**32 - 1),
    )


def named(argument: str, names: Any) -> list[str]:
    """Checks an argument that names columns; None gives an empty list."""
    if names is None:
        return []
    found = [_name(argument, name) for name in validate.sequence(argument, names, "names of columns")]
    if not found:
        raise BadValue(argument, "must name at least one column, or be None", names)
    return found


def _name(argument: str, name: Any) -> str:
    """Checks the name of a column, which may be an integer in a frame."""
    number = isinstance(name, int) and not isinstance(name, bool) and abs(name) <= validate.LARGEST
    return str(name) if number else validate.text(argument, name)


def _rows(columns: Columns, time: str | None) -> list[str]:
    left_out = [f"left out: {columns.left_out:,} rows with missing values"] if columns.left_out else []
    return left_out + ([f"the earliest rows by {time} fit the model"] if time is not None else [])


def _check_roles(names: dict[str, str], listed: dict[str, list[str]]) -> None:
    seen: dict[str, str] = {}
    for argument, name in (*names.items(), *((a, name) for a, columns in listed.items() for name in columns)):
        if name in seen:
            other = seen[name]
            got = f"{name!r} for both"
            raise BadValue(argument, f"must name another column than {other}", name, got=got, others=(other,))
        seen[name] = argument


def _check_arms(columns: Columns, arm: Column) -> None:
    levels = levels_of(arm)
    if not 2 <= len(levels) <= MOST_ARMS:
        got = (
            f"only {levels[0]!r}" if len(levels) == 1 else f"{len(levels):,}, such as {levels[0]!r} and {levels[1]!r},"
        )
        raise BadValue("arm", f"must have 2 to {MOST_ARMS:,} distinct values", got, got=f"{got} in column {arm.name!r}")


def _scaled(columns: Columns, reward: Column) -> tuple[np.ndarray, float, float]:
    """Maps rewards to [0, 1]; also returns the ones that become 0 and 1."""
    low, high = float(reward.values.min()), float(reward.values.max())
    if low == high:
        raise BadValue("reward", "must vary", low, got=f"{low:g} in all rows of column {reward.name!r}")
    return (reward.values - low) / (high - low), low, high


def _check_propensities(columns: Columns, propensity: Column) -> None:
    wrong = (propensity.values < validate.LEAST_FLOAT) | (propensity.values > 1)
    if wrong.any():
        i = int(np.argmax(wrong))
        value, where = propensity.values[i], columns.where(i, propensity.name)
        raise BadValue("propensity", "must be in (0, 1] and fit 32 bits", value, got=f"{value:g} {where}")


def _are_shares(place: np.ndarray, played: np.ndarray, propensity: np.ndarray) -> bool:
    """Returns whether propensities are the shares of arms among all rows, or among the rows of each silo."""
    for group in (place, np.zeros_like(place)):
        counts = np.zeros((group.max() + 1, played.max() + 1))
        np.add.at(counts, (group, played), 1)
        if np.allclose(propensity, (counts / counts.sum(1, keepdims=True))[group, played], rtol=1e-5, atol=0):
            return True
    return False


def _left_out(whole: Columns, left: Columns, names: Sequence[str], min_rows: int) -> list[str]:
    of = " and ".join(
        f"{len(levels_of(whole.found[name])) - len(levels_of(left.found[name])):,} of "
        f"{len(levels_of(whole.found[name])):,} levels of {name}"
        for name in names
    )
    rows = f"{whole.n_rows - left.n_rows:,} of {whole.n_rows:,} rows"
    return [f"left out, with fewer than {min_rows} rows: {of}, {rows}"] if left.n_rows < whole.n_rows else []


def _users(users: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers users (N,) as 0 ... n - 1; also returns the most silos of one user."""
    there, numbered = np.unique(users, return_inverse=True)
    if len(there) > MAX_USERS:
        raise BadValue("user", f"must have at most {MAX_USERS:,} distinct values", len(there), got=f"{len(there):,}")
    pairs = np.unique(numbered * (place.max() + 1) + place)
    return numbered.astype(np.int32), int(np.bincount(pairs // (place.max() + 1)).max())


def _spec(fit: Fit, design: JointFeatures, rows: np.ndarray, *, fixed_contexts: bool) -> Spec:
    users, arms = ((part.astype(float) ** 2).sum(1).max() for part in (rows, design.arms))
    return Spec(
        n_agents=fit.silos,
        n_arms=fit.arms,
        dim=fit.dim,
        fixed_contexts=fixed_contexts,
        max_norm=round(math.sqrt(users * arms + (design.intercept or 0.0) ** 2), 6),
        rewards_in_unit=True,
        n_users=fit.users,
        constant=True,
        silos=fit.crossing,
        basis=fit.sentence,
        of_rows=True,
    )
