"""Any log as an environment: rows of silo, arm and reward, perhaps with identified users."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.data import design as designs
from fedbandit_jax.data import fit as fits
from fedbandit_jax.data.columns import Wanted, read
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
    time: str | None = None,
    decimal: str | None = None,
    missing: Sequence[str] | None = None,
    fit_share: float = 0.5,
    model: str = "linear",
    seed: int = 0,
) -> Logged:
    """Turns a log with rows of silo, arm and reward into an environment.

    A share of the rows of each silo fits a model of the reward. If users return, it is a share of the users with all
    their rows. The other rows are replayed. In every round each silo serves one of them, drawn uniformly, and the model
    answers for any arm. So regret is the model's, and `env.fit` says how well it predicts the held-out rows.

    A user has the features z, a constant and the columns `features`. Without `arm_features` each arm has its own block,
    x = (1, 0, ..., z, ..., 0) / sqrt 2 and d = 1 + K p. With them an arm has a constant and these columns, w in R^q,
    and x = w kron z. `env.encoding` says how columns and rewards became numbers. Vectors have norms of at most 1, and a
    constant first entry. Without `features`, or if they are constant in every silo, contexts are fixed and public.

    Args:
        source: a path, a frame of pandas or polars, a table of pyarrow, or a mapping of names to vectors. A text file
            has a header, is in UTF-8 or UTF-16, perhaps compressed, with commas, semicolons, tabs or bars between
            columns. pandas reads it (the extra `data`). A .parquet file also needs pyarrow (the extra `parquet`).
        silo: column of silos: M distinct values.
        arm: column of played arms: K >= 2 distinct values.
        reward: column of observed rewards, numbers.
        user: column of users, if they return, perhaps to several silos. By default all are new.
        features: columns of the user known before an arm is chosen, numbers or texts; by default none.
        arm_features: columns that describe the arm, equal in all rows of an arm.
        propensity: column of the probabilities in (0, 1] of the played arms, kept in `env.log`. `env.shares` is set if
            they are the arms' shares in this table, which are estimates.
        time: column of numbers or dates. The earliest rows of every silo, or the first users, fit the model. By default
            they are drawn.
        decimal: decimal mark "." or "," of numbers in a text file; by default ".". You must choose if columns are
            separated by semicolons. Separators of thousands, units and currencies are not read.
        missing: texts of missing values besides those that pandas knows, such as ["-999"]. Rows with a missing value in
            a named column are dropped. By default such rows are refused, and so are "-", "?" and a lone code such as
            -999. An empty list [] reads every text as it stands.
        fit_share: share of the rows, or of the users, that fit the model, in (0, 1).
        model: "linear", least squares with means clipped to [0, 1], or "logistic", with mean 1 / (1 + exp(-<x,
            theta>)), which linear algorithms misspecify.
        seed: seed of the draw of these rows, >= 0.

    Raises:
        ValueError, TypeError: an argument or the table is invalid; the message names row, column and value. Rows of a
            file are counted with its header as row 1, other rows from 0.
        ImportError: pandas, or pyarrow, is missing.

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
    roles = dict(silo=silo, arm=arm, reward=reward)
    roles |= {
        role: name for role, name in dict(user=user, propensity=propensity, time=time).items() if name is not None
    }
    names = {role: _name(role, name) for role, name in roles.items()}
    listed = {"features": _named("features", features), "arm_features": _named("arm_features", arm_features)}
    _check_roles(names, listed)
    fit_share, model, seed = checked(fit_share, model, seed).values()
    if decimal is not None:
        validate.one_of("decimal", decimal, (".", ","))
    if missing is not None:
        missing = validate.sequence("missing", missing, "texts")
        if not all(isinstance(one, str) for one in missing):
            raise BadType("missing", "must be a sequence of texts", missing)

    kinds: dict[str, Any] = dict(silo="labels", arm="labels", user="labels", time="times")
    wanted = [Wanted(name, argument, kinds.get(argument, "numbers")) for argument, name in names.items()]
    wanted += [Wanted(name, argument, "either") for argument, columns in listed.items() for name in columns]
    columns = read(source, wanted, decimal, missing)
    found = {argument: columns.found[name] for argument, name in names.items()}
    values = {argument: column.values for argument, column in found.items()}
    arms = found["arm"].levels
    if not 2 <= len(arms) <= MOST_ARMS:
        got = f"{len(arms):,}, such as {' and '.join(map(repr, arms[:2]))}, in column {names['arm']!r}"
        raise BadValue("arm", f"must have 2 to {MOST_ARMS:,} distinct values", len(arms), got=got)
    low, high = float(values["reward"].min()), float(values["reward"].max())
    if low == high:
        raise BadValue("reward", "must vary", low, got=f"{low:g} in all rows of column {names['reward']!r}")
    who, chances = values.get("user"), values.get("propensity")
    if chances is not None and (wrong := (chances < validate.LEAST_FLOAT) | (chances > 1)).any():
        i = int(np.argmax(wrong))
        got = f"{chances[i]:g} {columns.where(i, names['propensity'])}"
        raise BadValue("propensity", "must be in (0, 1] and fit 32 bits", chances[i], got=got)
    design = designs.make(columns, found["arm"], listed)

    place, played, rewards = values["silo"], values["arm"], (values["reward"] - low) / (high - low)
    fitted, replayed = fits.split(place, fit_share, seed, who, values.get("time"))
    fits.check_rows(design, found["arm"], played[fitted], columns)
    theta = fits.fitted(model, design, fitted, played, rewards)

    counts = np.bincount(place[replayed], minlength=len(found["silo"].levels))
    users, crossing = (None, 1) if who is None else _users(who[replayed], place[replayed])
    fit = Fit(
        model=model,
        source=columns.title,
        reward=names["reward"],
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
        **fits.measured(model, design, theta, replayed, played, rewards, float(rewards[fitted].mean())),
    )
    rows = design.users.rows[replayed]
    first = np.unique(place, return_index=True)[1][place]  # row of the same silo
    longest, largest = ((part.astype(float) ** 2).sum(1).max() for part in (rows, design.arms))
    spec = Spec(
        n_agents=fit.silos,
        n_arms=fit.arms,
        dim=fit.dim,
        fixed_contexts=all(bool((one == one[first]).all()) for one in design.users.rows.T),
        max_norm=round(math.sqrt(longest * largest + (design.intercept or 0.0) ** 2), 6),
        rewards_in_unit=True,
        n_users=fit.users,
        constant=True,
        silos=crossing,
        basis=fit.sentence,
        of_rows=True,
    )
    earliest = [f"the earliest rows by {time} fit the model"] if time is not None else []
    scale = f"reward: ({reward} - {low:g}) / {high - low:g}"
    return Logged(
        rows=rows,
        arms=design.arms,
        starts=(np.cumsum(counts) - counts).astype(np.int32),
        counts=counts.astype(np.int32),
        users=users,
        theta=theta.astype(np.float32),
        rewards=FittedLaw(noise_std=1.0 if np.isin(rewards, (0, 1)).all() else np.float32(fit.noise_std), model=model),
        log=Log(
            columns.rows[replayed].astype(np.int32),
            played[replayed].astype(np.int32),
            rewards[replayed].astype(np.float32),
            None if chances is None else chances[replayed].astype(np.float32),
        ),
        intercept=design.intercept,
        encoding="\n".join([*columns.left_out, *design.how, scale, *earliest]),
        fit=fit,
        spec=spec,
        shares=chances is not None and _are_shares(place, played, chances),
    )


def checked(fit_share: Any, model: Any, seed: Any) -> dict[str, Any]:
    """Checks the options of a fit, and returns them by name."""
    return dict(
        fit_share=validate.probability("fit_share", fit_share),
        model=validate.one_of("model", model, MODELS),
        seed=validate.integer("seed", seed, at_least=0, at_most=2**32 - 1),
    )


def _named(argument: str, names: Any) -> list[str]:
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


def _check_roles(names: dict[str, str], listed: dict[str, list[str]]) -> None:
    seen: dict[str, str] = {}
    for argument, name in (*names.items(), *((a, name) for a, columns in listed.items() for name in columns)):
        other = seen.setdefault(name, argument)
        if other != argument or listed.get(argument, []).count(name) > 1:
            got = f"{name!r} for both"
            raise BadValue(argument, f"must name another column than {other}", name, got=got, others=(other,))


def _are_shares(place: np.ndarray, played: np.ndarray, propensity: np.ndarray) -> bool:
    """Returns whether propensities are the shares of arms among all rows, or among the rows of each silo."""
    for group in (place, np.zeros_like(place)):
        counts = np.zeros((group.max() + 1, played.max() + 1))
        np.add.at(counts, (group, played), 1)
        if np.allclose(propensity, (counts / counts.sum(1, keepdims=True))[group, played], rtol=1e-5, atol=0):
            return True
    return False


def _users(users: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, int]:
    """Numbers users (N,) as 0 ... n - 1; also returns the most silos of one user."""
    there, numbered = np.unique(users, return_inverse=True)
    if len(there) > MAX_USERS:
        raise BadValue("user", f"must have at most {MAX_USERS:,} distinct values", len(there), got=f"{len(there):,}")
    pairs = np.unique(numbered * (place.max() + 1) + place)
    return numbered.astype(np.int32), int(np.bincount(pairs // (place.max() + 1)).max())
