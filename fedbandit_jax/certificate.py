"""Certificates: what a run proves about privacy, what it does not, and by which accountant. No JAX here."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any, Literal

Claim = Literal["certified", "as_printed", "none"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """The privacy statement saved with every result.

    `claim` is
    - `certified`: the stated (epsilon, delta) holds for the code that ran, under the stated adjacency;
    - `as_printed`: only the weaker statement in `reason` holds, the paper's own does not;
    - `none`: nothing is claimed; `epsilon_exact` still says what the noise alone would give, if anything.

    Attributes:
        reason: why this claim and no stronger one.
        trust: who adds the noise, and who is not trusted.
        adjacency: what may differ between neighbouring data sets.
        unit: whose data that is.
        epsilon, delta: the budget asked for.
        epsilon_exact: smallest epsilon that the noise gives at delta; infinite if no sensitivity bound holds.
        accountant: what proves it.
        noise_std: standard deviation of every entry of the noise of one message, in units of x y and x x'.
        noise_whose: whose message that is.
        server_noise_std: the largest of an entry of the server's sums, over all synchronisations.
        releases: messages of one silo.
        releases_per_user: squared sensitivity of all of them to one user, relative to one release.
        per_silo: (epsilon asked, delta, epsilon that the noise gives) of every silo when they differ; epsilon, delta
            and epsilon_exact are then those of the silo with the largest.
        not_covered: what an adversary may see beyond the guarantee, and what it assumes.
    """

    claim: Claim
    reason: str
    trust: str = "none"
    adjacency: str = "none"
    unit: str = "none"
    epsilon: float | None = None
    delta: float | None = None
    epsilon_exact: float | None = None
    accountant: str = "none"
    noise_std: float | None = None
    noise_whose: str = "of a silo's message"
    server_noise_std: float | None = None
    releases: int | None = None
    releases_per_user: float | None = None
    per_silo: tuple[tuple[float, float, float], ...] = ()
    not_covered: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON-serialisable dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Certificate:
        """Inverse of `to_json`."""
        lists = {"not_covered": tuple(fields.get("not_covered", ()))}
        lists["per_silo"] = tuple(map(tuple, fields.get("per_silo", ())))
        return cls(**{**fields, **lists})

    def __str__(self) -> str:
        rows = [("claim", f"{self.claim}: {self.reason}")]
        if self.epsilon is not None:
            rows += [
                ("budget asked", f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"),
                ("noise gives", f"epsilon = {_number(self.epsilon_exact)} at delta = {self.delta:g}"),
                ("accountant", self.accountant),
                ("trust model", self.trust),
                ("adjacency", self.adjacency),
                ("privacy unit", self.unit),
                ("noise", f"std {_number(self.noise_std)} per entry {self.noise_whose}, "
                          f"at most {_number(self.server_noise_std)} in the server's sums"),
                ("releases", f"{self.releases}; a user's part in them counts as {_number(self.releases_per_user)} "
                             "(squared sensitivity)"),
            ]  # fmt: skip
        if self.per_silo:
            asked, _, gives = zip(*self.per_silo)
            rows.append(("per silo", f"{len(asked)} budgets, epsilon asked {min(asked):g} to {max(asked):g}, given "
                                     f"{_number(min(gives))} to {_number(max(gives))}"))  # fmt: skip
        if self.not_covered:
            rows.append(("not covered", "; ".join(self.not_covered)))
        return "\n".join(
            textwrap.fill(
                value, 100, initial_indent=f"{label:<13} ", subsequent_indent=" " * 14, break_on_hyphens=False
            )
            for label, value in rows
        )


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def no_privacy(reason: str) -> Certificate:
    """The certificate of an algorithm that protects nobody."""
    return Certificate(claim="none", reason=reason)
