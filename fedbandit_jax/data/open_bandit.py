"""The format of the Open Bandit Dataset: items that a shop showed in three positions, with propensities and clicks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbandit_jax.core import validate
from fedbandit_jax.core.extras import require
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.sources import framed
from fedbandit_jax.data.table import checked, named, table
from fedbandit_jax.envs.logged import Logged

ITEMS = "item_context.csv"
NAMES = dict(arm="item_id", reward="click", propensity="propensity_score")
ABOUT_ITEMS = ("item_feature_0", "item_feature_1", "item_feature_3")  # feature 2 has almost one value for each item


def open_bandit(
    path: str | Path,
    *,
    silo: str = "position",
    features: Sequence[str] | None = None,
    arm_features: Sequence[str] | None = ABOUT_ITEMS,
    fit_share: float = 0.5,
    model: str = "linear",
    seed: int = 0,
) -> Logged:
    """Loads your own copy of a campaign of the Open Bandit Dataset as an environment, see `fb.data.table`.

    An arm is an item, the reward a click, and the log has propensities. So `fb.envs.rejection` and `fb.off_policy` work
    without a model. The log does not identify users, so they do not return.

    The sample of 10,000 rows in the authors' package obp has 38 clicks in random/all. It shows only that files are
    read.

    Args:
        path: folder of a campaign, such as random/all, with all.csv and item_context.csv.
        silo: column of silos, such as "user_feature_1"; by default the position on the page, one of three.
        features: columns of the user known before an arm is chosen, such as ["user_feature_0"]; by default none.
        arm_features: columns of item_context.csv that describe an item; None: a separate block of user features for
            each arm.
        fit_share: as in `fb.data.table`, like the others.
        model: "linear" or "logistic".
        seed: seed of the draw of the rows that fit the model.

    Raises:
        ImportError: pandas is missing.
        OSError: a file is missing.
        ValueError, TypeError: an argument or a row is invalid; rows are counted from 0, without the header.

    Reference: Saito, Aihara, Matsutani & Narita (2021), "Open Bandit Dataset and Pipeline", CC BY 4.0.
    """
    options = checked(fit_share, model, seed)
    names: dict[str, Any] = dict(silo=validate.text("silo", silo), **NAMES)
    listed = dict(
        features=named("features", features) or None, arm_features=named("arm_features", arm_features) or None
    )
    frame = _read(*_files(path))
    return table(framed(frame, "Open Bandit"), **names, **listed, **options)


def _files(path: Any) -> tuple[Path, Path]:
    folder = validate.path("path", path)
    logs = sorted(file for file in folder.glob("*.csv") if file.name != ITEMS)
    if len(logs) != 1 or not (folder / ITEMS).is_file():
        found = ", ".join(file.name for file in sorted(folder.glob("*.csv"))) or "no CSV"
        raise FileNotFoundError(f"path must hold one log and {ITEMS}, got {str(folder)!r} with {found}")
    return logs[0], folder / ITEMS


def _read(log: Path, items: Path) -> Any:
    """Joins the log with the description of each row's item."""
    pandas = require("pandas", "data")
    shown, described = pandas.read_csv(log), pandas.read_csv(items)
    for frame, file, names in ((shown, log, NAMES.values()), (described, items, ["item_id"])):
        if missing := [name for name in names if name not in frame.columns]:
            got = f"{file.name} without {missing[0]}"
            raise BadValue("path", "must hold files with all columns", file.name, got=got)
    own = [name for name in described.columns if name not in shown.columns or name == "item_id"]
    if described["item_id"].duplicated().any():
        twice = described["item_id"][described["item_id"].duplicated()].iloc[0]
        got = f"item {twice} twice in {items.name}"
        raise BadValue("path", "must hold files that describe every item once", twice, got=got)
    return shown.merge(described[own], on="item_id", how="left")
