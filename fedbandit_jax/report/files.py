"""Files of results, and checks of their contents."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedbandit_jax.certificate import CLAIMS, Certificate, of_fields
from fedbandit_jax.core import validate
from fedbandit_jax.core.files import read_archive, write_archive
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.report.measured import NAMED, OF_LABELS, Measured

M = TypeVar("M", bound=Measured)

# Increase it only for content that older versions must not ignore, such as a part that weakens a claim. They warn of
# everything else that they do not know.
FORMAT = 3
_ARRAYS = ("rounds", "regret", "status")
_NAMED = (*NAMED, "record_rounds")
_TEXTS = ("certificates", "config", "provenance")
_CONFIG = (*OF_LABELS, "horizon", "seeds", "stride", "key")
_KINDS = {"rounds": "iu", "regret": "f", "status": "iu"}  # kinds of NumPy dtypes; "iuf" for others


def save(result: Measured, path: str | Path) -> Path:
    """Writes everything to one file, `path`.npz, and returns its path. `path` may end in .npz itself.

    Missing folders are created. The file is complete or absent. `np.load` opens it too. It finds the curves, and the
    rest in the text result.json.

    Raises:
        ValueError: arrays, certificates and configuration do not fit together; the message says where.
        OSError: the file is not writable; an old one is kept.
    """
    check(result)
    path = _npz(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    certificates = {label: dataclasses.asdict(certificate) for label, certificate in result.certificates.items()}
    about = {"format": FORMAT, "certificates": certificates, "config": result.config, "provenance": result.provenance}
    write_archive(path, "result", about, {**_arrays(result), "labels": np.array(result.labels)})
    return path


def read(path: str | Path, make: type[M]) -> M:
    """Implements `Result.load`."""
    path = given if (given := validate.path("path", path)).is_file() else _npz(given)
    advice = "; use an intact copy, or run the simulation again"
    try:
        about, arrays = read_archive(path, "result")
        advice = ""  # the file is intact
        attributes, unknown = _parsed(about, arrays)
        result = make(**attributes)
        check(result)
    except OSError as error:
        raise BadValue("path", "must be a saved result", path, got=f"{str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise BadValue("path", "must be a saved result", path, got=f"{str(path)!r}: {error}{advice}") from error
    if unknown:
        unknown = ", ".join(dict.fromkeys(unknown))
        warnings.warn(f"{str(path)!r} was written by a newer version: this one leaves out {unknown}", stacklevel=3)
    return result


def check(result: Measured) -> None:
    """Raises `ValueError` unless the arrays, certificates and configuration of a result fit together."""
    config, labels, regret = result.config, result.labels, result.regret
    _ask("config", config, _CONFIG)
    _ask("communication", result.communication, ["rounds", "floats", "bits"])
    for name in OF_LABELS:
        _ask(f"config's {name}", config[name], labels)
        if len(config[name]) > len(labels):
            got = ", ".join(config[name])
            raise BadValue(f"config's {name}", f"must be {', '.join(labels)}", got, got=got)
    for label, certificate in result.certificates.items():
        if certificate.claim not in CLAIMS:
            raise BadValue(f"the claim of {label!r}", f"must be one of {', '.join(CLAIMS)}", certificate.claim)
    for label, world in config["environments"].items():
        _ask(f"the environment of {label!r}", world, ["spec"])
        _ask(f"the spec of the environment of {label!r}", world["spec"], ["n_agents"])
    axes = () if len(labels) == 1 and regret.ndim == 2 else (len(labels),)
    shape = (*axes, _n_seeds(config["seeds"]), result.rounds.size)
    for name, array in _arrays(result).items():
        wanted = {"rounds": shape[-1:], "status": shape[:-1]}.get(name, shape)
        if name.startswith(("records_", "record_rounds_")):
            continue
        if array.shape != wanted or array.dtype.kind not in _KINDS.get(name, "iuf"):
            got = f"{array.dtype} of shape {array.shape}"
            raise BadValue(name, f"must be numbers of shape {wanted}", array.dtype, got=got)
    for name in [*result.records, *result.record_rounds]:
        rounds, array = (getattr(result, kind).get(name, np.zeros(())) for kind in ("record_rounds", "records"))
        wanted = (*shape[:-1], rounds.size)
        known = array.dtype.kind in "biufc" and rounds.dtype.kind in "iu" and rounds.ndim == 1
        if not known or array.shape[: len(wanted)] != wanted:
            got = f"{array.dtype} of shape {array.shape} and rounds of shape {rounds.shape}"
            raise BadValue(f"the record {name!r}", f"must be numbers of shape {wanted} and more", array.dtype, got=got)
    if not shape[-1] or np.diff(result.rounds, prepend=0).min() < 1 or result.rounds[-1] != config["horizon"]:
        raise BadValue("rounds", f"must increase from 1 to the horizon {config['horizon']}", result.rounds)


def _n_seeds(spans: Any) -> int:
    try:
        lengths = [end - first for first, end in spans]
    except (TypeError, ValueError):
        lengths = []
    if not lengths or min(lengths) < 1 or not all(isinstance(n, int) for n in lengths):
        raise BadValue("config's seeds", "must be stretches [[first, end], ...]", spans)
    return sum(lengths)


def _arrays(result: Measured) -> dict[str, np.ndarray]:
    named = {f"{kind}_{name}": array for kind in _NAMED for name, array in getattr(result, kind).items()}
    return {name: getattr(result, name) for name in _ARRAYS} | named


def _parsed(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], list[str]]:
    if about.get("format") != FORMAT:
        raise ValueError(f"its format is {about.get('format')!r}, but this version of fedbandit_jax reads {FORMAT}: "
                         "install the version that wrote it")  # fmt: skip
    _ask("it", about, _TEXTS)
    _ask("it", arrays, _ARRAYS)
    arrays.pop("labels", None)  # for other readers; also in the text
    for name in _TEXTS:
        _ask(name, about[name], [])
    found: dict[str, Any] = {name: arrays.pop(name) for name in _ARRAYS} | {name: about[name] for name in _TEXTS}
    for kind in _NAMED:
        names = [name for name in arrays if name.startswith(f"{kind}_")]
        found[kind] = {name.removeprefix(f"{kind}_"): arrays.pop(name) for name in names}
    unknown = [*arrays, *(name for name in about if name not in ("format", *_TEXTS))]
    fields = [field.name for field in dataclasses.fields(Certificate)]
    for label, written in about["certificates"].items():
        _ask(f"the certificate of {label!r}", written, fields)
        unknown += [f"a certificate's {name}" for name in written if name not in fields]
    found["certificates"] = {
        label: of_fields({name: written[name] for name in fields}) for label, written in about["certificates"].items()
    }
    return found, unknown


def _ask(name: str, value: Any, keys: Any) -> None:
    if not isinstance(value, Mapping):
        raise BadValue(name, "must be a dictionary", value)
    if missing := [key for key in keys if key not in value]:
        got = ", ".join(value) or "nothing"
        raise BadValue(name, f"must have {', '.join(missing)}", got, got=got)


def _npz(path: str | Path) -> Path:
    path = validate.path("path", path)
    if not path.name:
        raise BadValue("path", "must name a file", str(path))
    return path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
