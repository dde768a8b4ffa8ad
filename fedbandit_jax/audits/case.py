"""Cases, claims to refute, and the loading and auditing of lists of cases."""

from __future__ import annotations

import dataclasses
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jax import Array

from fedbandit_jax.audits import noise
from fedbandit_jax.audits.black_box import audit
from fedbandit_jax.core import bars, random, validate
from fedbandit_jax.core.validate import BadValue
from fedbandit_jax.privacy import behaviour
from fedbandit_jax.privacy.integers.ring import RingSum
from fedbandit_jax.privacy.noisy_sums import NoisyMechanism
from fedbandit_jax.report.findings import Audit

AGAIN = 0.999  # confidence of the second audit of a refuted claim
FEWEST = 10_000  # runs of slow mechanisms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism, pairs of neighbouring data sets and a claim; fields are arguments of `fb.audits.audit`.

    A mechanism that is `slow` times slower than others has as many times fewer runs, or `FEWEST`.
    """

    name: str
    mechanism: Any  # (key, data) -> view, a function or a pytree
    data: Any
    neighbour: Any
    epsilon: float
    delta: float
    gaussian: bool = False
    scheduled: bool = False
    fixed_control_flow: bool = False
    which: str = "as given"
    others: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    sensitivity: float | None = None
    measure: Callable[[Any, Any], Any] | None = None
    slow: int = 1

    def __post_init__(self):
        validate.text("name", self.name)
        validate.integer("slow", self.slow, at_least=1)

    @classmethod
    def of(cls, pairs: Mapping[str, tuple[Any, Any]], **fields: Any) -> Case:
        """Makes a case of several pairs of neighbours, by name; the first one is shown."""
        (which, (data, neighbour)), *others = pairs.items()
        return cls(data=data, neighbour=neighbour, which=which, others=dict(others), **fields)

    def run(self, key: Array, n_runs: int = 100_000, **options: Any) -> Audit:
        """Audits the case, and measures the noise of a bound algorithm; options as in `fb.audits.audit`.

        A refuted claim is audited again with another key, at confidence `AGAIN`. The second audit counts. Of many true
        claims some are refuted once, and next to none twice.
        """
        validate.integer("n_runs", n_runs, at_least=1000)
        fields: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["n_runs"] = max(n_runs // fields.pop("slow"), min(n_runs, FEWEST))
        found = audit(**fields, key=key, **options)
        if not found.epsilon_lower <= found.epsilon and found.confidence < AGAIN:
            options = {**options, "confidence": AGAIN}
            found = audit(**fields, key=random.stream(key, "again"), **options)
        owner = getattr(self.mechanism, "algo", self.mechanism)
        part = getattr(owner, "mechanism", None) or getattr(owner, "protocol", None)
        measured = isinstance(part, (NoisyMechanism, RingSum))
        if not measured:
            return found
        return dataclasses.replace(found, noise=behaviour.fault(part) or noise.odd(part, random.stream(key, "noise")))


def load(controls: str | Path) -> list[Case]:
    """Loads the cases returned by the functions `broken_*()` of a Python file, or of all files in a folder.

    A function returns a case or a list of cases. Files whose names begin with an underscore are only imported by
    others.

    Raises:
        ValueError: the file is missing, raises an error, or has no such functions, or one returns something else.
    """
    path = validate.path("controls", controls)
    files = sorted(path.glob("[!_]*.py")) if path.is_dir() else [path]
    cases = [case for file in files for case in _load(file)]
    if not cases:
        raise BadValue("controls", "must be Python files", path, got=f"none in {str(path)!r}")
    return cases


def _load(path: Path) -> list[Case]:
    """Loads the cases of one file, which can import modules of its folder."""
    if not path.is_file():
        raise BadValue("controls", "must be a Python file", str(path))
    name, cases = path.name, []
    sys.path.insert(0, str(path.parent))
    try:
        for name, value in runpy.run_path(str(path), run_name=f"fedbandit_controls_{path.stem}").items():
            if name.startswith("broken_"):
                found = value()
                cases += found if isinstance(found, list) else [found]
    except Exception as error:
        raise BadValue("controls", "must run", error, got=f"{type(error).__name__} in {name}: {error}") from error
    finally:
        sys.path.remove(str(path.parent))
    for case in cases:
        validate.instance("controls", case, Case, "functions broken_* that return fb.audits.Case")
    if not cases:
        raise BadValue("controls", "must define functions broken_*", path, got=f"none in {str(path)!r}")
    return cases


def run(cases: Sequence[Case], *, key: Array, progress: bool = False, **options: Any) -> list[Audit]:
    """Audits all cases, each with a key derived from its name; options as in `fb.audits.audit`."""
    for case in validate.sequence("cases", cases, "fb.audits.Case"):
        validate.instance("cases", case, Case, "a sequence of fb.audits.Case")
    random.check_key(key)
    shown = bars.bar(validate.boolean("progress", progress), cases, desc="audit", leave=False)
    return [case.run(random.stream(key, case.name), **options) for case in shown]
