"""The JSON schema of certificates and of the text in a saved result, for readers without this package."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from typing import Any

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.report.files import FORMAT
from fedbandit_jax.report.measured import OF_LABELS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SIMPLE = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    float: {"anyOf": [{"type": "number", "minimum": 0}, {"const": "Infinity"}]},
    type(None): {"type": "null"},
}
PROBABILITIES = ("delta", "smallest_delta", "wrap_probability")
OBJECT: dict[str, Any] = {"type": "object"}
# provenance of every run; some have more
TOLD = ("fedbandit_jax", "jax", "jaxlib", "numpy", "python", "device", "platform", "dtype", "date", "command")


def schema() -> dict[str, Any]:
    """Returns the JSON schema (draft 2020-12) of `result.json` in a saved result, with certificates in `$defs`.

    Infinite numbers and NaN are the words Infinity, -Infinity and NaN. A string equal to one of these has a backslash
    before it. Certificates have no negative numbers, so only Infinity, and only the fields of this version.

    Example:
        >>> import fedbandit_jax as fb
        >>> sorted(fb.schema()["properties"]), fb.schema()["$defs"]["certificate"]["properties"]["claim"]["enum"]
        (['certificates', 'config', 'format', 'provenance'], ['none', 'as_printed', 'certified'])
    """
    typed = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
    world = {**typed, "required": ["type", "spec"], "properties": {**typed["properties"], "spec": typed}}
    kinds = {"environments": world, "algorithms": typed, "coordinates": {**OBJECT, "required": ["algorithm"]}}
    count = {"type": "integer", "minimum": 0}
    pair = {"type": "array", "items": count, "minItems": 2, "maxItems": 2}
    config = {
        **{name: {"type": "object", "additionalProperties": kinds[name]} for name in OF_LABELS},
        "horizon": {"type": "integer", "minimum": 1, "description": "T, the number of rounds"},
        "seeds": {"type": "array", "items": pair, "description": "stretches [first, end] of numbers of seeds"},
        "stride": {"type": ["integer", "string", "null"], "description": "rounds between two points of a curve"},
        "key": {"type": "array", "items": count, "description": "words of the random key"},
    }
    told = {name: SIMPLE[str] for name in TOLD} | {"git_commit": _of(str | None), "seconds": SIMPLE[float]}
    return {
        "$schema": DRAFT,
        "title": "result.json of a saved result of fedbandit_jax",
        **_object({
            "format": {"const": FORMAT},
            "certificates": {"type": "object", "additionalProperties": {"$ref": "#/$defs/certificate"}},
            "config": {**_object(config), "description": "what was run, by label"},
            "provenance": {**_object(told), "description": "by which code, where and when"},
        }),
        "$defs": {"certificate": certificate()},
    }  # fmt: skip


def certificate() -> dict[str, Any]:
    """Returns the schema of `Certificate.to_json`, from its annotations and docstring. No number is below 0."""
    hints, words = typing.get_type_hints(Certificate), _attributes(inspect.getdoc(Certificate) or "")
    fields = {field.name: {**_of(hints[field.name]), "description": words[field.name]}
              for field in dataclasses.fields(Certificate)}  # fmt: skip
    for name in PROBABILITIES:
        fields[name]["maximum"] = 1
    return {**_object(fields), "additionalProperties": False}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _of(hint: Any) -> dict[str, Any]:
    """Returns the schema of an annotation: a number, a string, a literal, a tuple, or a union of these."""
    parts = typing.get_args(hint)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if typing.get_origin(hint) is typing.Literal:
        return {"enum": list(parts)}
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return {"anyOf": [_of(part) for part in parts]}
    if parts[-1] is Ellipsis:
        return {"type": "array", "items": _of(parts[0])}
    return {"type": "array", "prefixItems": [_of(part) for part in parts], "items": False, "minItems": len(parts)}


def _attributes(docstring: str) -> dict[str, str]:
    """Returns name -> words, from the Attributes of a docstring. A line may have several names."""
    listed = docstring.partition("Attributes:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    ([\w, ]+): (.*(?:\n        .*)*)", listed, re.M)
    return {name: " ".join(words.split()) for names, words in found for name in names.split(", ")}
