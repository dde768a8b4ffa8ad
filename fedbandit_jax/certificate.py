"""Certificates, which state the privacy guarantee of a run, its proof, and its limits.

This module does not import JAX.
"""

from __future__ import annotations

import dataclasses
import hashlib
import html
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from fedbandit_jax.core import validate
from fedbandit_jax.core.files import from_json, in_json
from fedbandit_jax.core.printed import Printed

# meaning of a requested epsilon in these notions
FORMULAS = {
    "Renyi DP": "leading term alpha epsilon^2 / 2, proved bound in the line Renyi curve",
    "zCDP": "leading term rho = epsilon^2 / 2, proved bound in the line zCDP",
}
# Parties that users must trust, from the strictest to the loosest; "own" is a user-defined trust model.
PARTIES = ("nobody", "silo", "shuffler", "secagg", "server", "own", "")
PAIRS = ("(epsilon, delta)-DP", "pure DP")  # notions that (epsilon, delta) states completely
Claim = Literal["none", "as_printed", "certified"]  # from the weakest to the strongest
CLAIMS: tuple[Claim, ...] = get_args(Claim)


BEYOND = (  # for every protocol: raw data kept in a result, and the choice of its configuration
    "data that the simulator keeps: the key of all noise, curves, records, status bits, decoding failures, sha256 of "
    "data",
    "tuning by a sweep or fb.plan, itself a release",
)


PASSES = "; for data that pass the mechanism: "  # between the reasons of raw-data accesses and of the mechanism


class Raw(NamedTuple):
    """A raw-data access: a run reads its users' data outside the mechanism, or shows them to others.

    A bound algorithm lists its accesses in the property `raw`. The same static fields decide what is read and whether
    `raw` lists it. `Certificate.through` states what remains of the claim.
    """

    why: str  # a clause: the data that are read, and why the stronger claim fails
    seen: str  # data that an adversary may learn
    claim: Claim = "none"  # the strongest claim of a run with this access


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate(Printed):
    """States the privacy of a run; saved with every result. `print(certificate)` shows it on one screen.

    Attributes:
        claim: "certified" if the requested budget holds, in its `notion` and adjacency, for the protocol that ran.
            "as_printed" if only the weaker statement in `reason` holds, and the paper's own does not. "none" if nothing
            is claimed. Then `epsilon_exact` is finite if the only fault is too little noise. It is infinite if rewards
            are unbounded, raw data are read, float32 is too coarse, or there is (almost) no noise.
        reason: why this claim and no stronger one is made.
        trust: the party that adds the noise, and the parties that are not trusted.
        trusted: the party that users must trust: "nobody", their "silo", a "shuffler", "secagg" or the "server". "own"
            stands for a user-defined trust model.
        server: whether a server receives messages; otherwise silos send them to each other.
        adjacency: the difference between neighbouring data sets.
        neighbours: kind of adjacency, "replace", "zero_out" or "any".
        unit: privacy unit, the data that may differ.
        whole_user: whether all contributions of a user are protected together.
        user_defined: user-defined parts of the algorithm, whose statements are not checked.
        notion: notion of privacy of the requested epsilon: "(epsilon, delta)-DP", "pure DP", "Renyi DP" or "zCDP". The
            divergence of "Renyi DP" has the leading term alpha epsilon^2 / 2, and `renyi` has the proved bound. The rho
            of "zCDP" has the leading term epsilon^2 / 2, and `zcdp` has the proved bound. These two give
            (epsilon, delta)-DP at `epsilon_exact`, not at `epsilon`.
        epsilon: requested epsilon, or None without a budget.
        delta: requested delta, 0 for pure DP. For a notion without delta, `epsilon_exact` is computed at it.
        epsilon_exact: smallest epsilon that the noise is proved to give at delta. It is infinite if there is none, for
            instance with unbounded rewards or a raw-data access that voids the claim.
        warning: set if delta is at least one over the number of visits. Publishing one random visit in full satisfies
            (epsilon, delta)-DP with such a delta.
        smallest_delta: smallest delta that this noise could give at any epsilon. Its far tails are never drawn, and
            their mass is charged to delta. Noise with bounded support never gives pure DP; this is then its true delta.
        accountant: proof of `epsilon_exact`.
        noise_std: standard deviation of the noise on one entry, in units of x y and x x', or of rewards. For x x' it
            holds on the diagonal. Other entries have 1 / sqrt 2 of it, unless `noise_whose` differs.
        noise_whose: the message or sum that has noise of `noise_std`, and the entries.
        server_noise_std: largest standard deviation of the noise in an entry of the server's sums over all
            synchronisations, in units of x x'. None without a server; `noise_whose` then describes who sums what.
        release: name of the class that forms sums over time from messages.
        releases: number of messages of one silo, or the most there may be.
        releases_per_user: kappa, the squared sensitivity of all these messages to the privacy unit, relative to one
            message. If the unit is a visit, r visits of a user have at most r^2 kappa.
        sensitivity: largest change of all these messages by the privacy unit, with rounding, in the joint l2 norm where
            every entry has noise of `noise_std`. With mu = sensitivity / noise_std, `epsilon_exact` solves
            Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu) = delta if all noise is Gaussian and the
            schedule spends nothing. None if not stated.
        per_silo: (requested epsilon, delta, epsilon of the noise) of every silo, if silos have separate budgets. The
            fields `epsilon`, `delta` and `epsilon_exact` are then of the silo with the largest `epsilon_exact`.
        schedule: how synchronisation times are chosen, and the epsilon that this spends.
        renyi: pairs (order alpha, bound on the Renyi divergence of that order) for one visit.
        zcdp: (rho, xi) of zero-concentrated DP, where rho includes xi. A sum of discrete Gaussians is no discrete
            Gaussian, which costs xi. `fb.privacy.zcdp_epsilon(rho, delta)` converts it.
        visits: (n, delta, proved epsilon, epsilon by advanced composition) for several n, for a user in n different
            sums. Visits in one sum need group privacy and are not covered.
        bits_per_user: fewest and most bits that a user sends.
        wrap_probability: bound on the probability that the noise of one sum wraps around the ring of integers modulo m.
        not_covered: data that an adversary sees anyway, and events that would break the guarantee.
    """

    claim: Claim
    reason: str
    trust: str = "none"
    trusted: str = ""
    server: bool = True
    adjacency: str = "none"
    neighbours: str = ""
    unit: str = "none"
    whole_user: bool = False
    user_defined: tuple[str, ...] = ()
    notion: str = "(epsilon, delta)-DP"
    epsilon: float | None = None
    delta: float | None = None
    epsilon_exact: float | None = None
    warning: str = ""
    smallest_delta: float | None = None
    accountant: str = "none"
    noise_std: float | None = None
    noise_whose: str = "per entry of a silo's message"
    server_noise_std: float | None = None
    release: str | None = None
    releases: int | None = None
    releases_per_user: float | None = None
    sensitivity: float | None = None
    per_silo: tuple[tuple[float, float, float], ...] = ()
    schedule: str | None = None
    renyi: tuple[tuple[float, float], ...] = ()
    zcdp: tuple[float, float] | None = None
    visits: tuple[tuple[int, float, float, float], ...] = ()
    bits_per_user: tuple[float, float] | None = None
    wrap_probability: float | None = None
    not_covered: tuple[str, ...] = ()

    def through(self, leaks: Sequence[Raw]) -> Certificate:
        """Weakens this certificate by raw-data accesses.

        The claim becomes the weakest of its own and theirs. An access that leaves "none" also makes `epsilon_exact`
        infinite. The reason then keeps the statement about data that pass the mechanism.
        """
        if not leaks or (self.claim == "none" and self.epsilon is None):
            return self
        claim = min((self.claim, *(leak.claim for leak in leaks)), key=CLAIMS.index)
        voided = [leak for leak in leaks if leak.claim == "none"]
        why = "; ".join(leak.why for leak in voided or leaks)
        if self.reason:
            why += f"{PASSES}{self.reason}"
        return dataclasses.replace(
            self,
            claim=claim,
            adjacency=self.adjacency + ", with the actions of all other users fixed" * (claim == "as_printed"),
            reason=why if voided or claim != "none" else self.reason,
            epsilon_exact=math.inf if voided and self.epsilon is not None else self.epsilon_exact,
            not_covered=(*(leak.seen for leak in leaks), *self.not_covered),
        )

    def among(self, n_visits: int) -> Certificate:
        """Returns the certificate for `n_visits` visits of users, with a `warning` unless delta < 1 / `n_visits`.

        Publishing each visit with probability delta is (0, delta)-DP. The warning is conservative if several visits of
        a user are protected together.
        """
        validate.integer("n_visits", n_visits, at_least=1, at_most=math.inf)
        if self.claim == "none" or not self.delta or self.delta < 1 / n_visits:
            return self
        weak = f"delta = {self.delta:g} is not below 1 / {n_visits:,} visits of users"
        return dataclasses.replace(self, warning=f"{weak}, so it permits full disclosure of a user")

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON data: lists for tuples, and the word Infinity for an infinite epsilon."""
        return in_json(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Certificate:
        """Makes a certificate from the result of `to_json`, also after a round trip through JSON."""
        validate.instance("fields", fields, Mapping, "the result of to_json")
        return of_fields(from_json(fields))

    def report(self, format: str = "markdown") -> str:
        """Formats a page for a reviewer: the protected data, the trusted parties, the proof, and its limits.

        The page has the certificate's digest, the SHA-256 of its JSON with sorted keys. If all noise is Gaussian, it
        also has the equation from noise to epsilon, with numbers to check.

        Args:
            format: "markdown" or "html" (a whole file).
        """
        return page("Privacy report", self.sections(), format)

    def sections(self) -> list[tuple[str, Sequence[tuple[str, str]]]]:
        """Returns the headings of `report`, each with lines as in `lines`."""
        text = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()
        lines = [*self.lines(), *self._equation(), ("digest", f"sha256 {text} of this certificate")]
        places = [(PLACES.get(name, PROOF), (name, text)) for name, text in lines]
        headings = ("Protected", "Trusted", PROOF, "Limits")
        return [(one, found) for one in headings if (found := [line for place, line in places if place == one])]

    def _equation(self) -> list[tuple[str, str]]:
        """Returns the equation of Gaussian noise, if `epsilon_exact` solves it."""
        from scipy.special import log_ndtr

        epsilon = self.epsilon_exact
        if not (epsilon and self.delta and self.sensitivity and self.noise_std) or math.isinf(epsilon):
            return []
        mu = self.sensitivity / self.noise_std
        right = math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        delta = math.exp(log_ndtr(mu / 2 - epsilon / mu)) - right
        if not math.isclose(delta, self.delta, rel_tol=1e-6):  # the excess of integer noise is larger
            return []
        text = "Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu) = delta"
        numbers = f"mu = {mu:.7g}, the sensitivity over the std of the noise, epsilon = {epsilon:.7g}"
        return [("equation", f"{text} with {numbers} and delta = {delta:.4g}")]

    def __str__(self) -> str:
        return "\n".join(
            textwrap.fill(text, 100, initial_indent=f"{name:<13} ", subsequent_indent=" " * 14, break_on_hyphens=False)
            for name, text in self.lines()
        )

    def lines(self) -> list[tuple[str, str]]:
        """Returns the lines of `print(certificate)`, as pairs of a name and a text."""
        rows = [("claim", f"{self.claim}: {self.reason}")]
        if self.epsilon is not None:
            of = f"{self.releases}" + (f" by {self.release}" if self.release else "")
            if self.sensitivity and self.noise_std:
                share = self.sensitivity / self.noise_std
                of += f"; one unit moves them by at most {self.sensitivity:.4g} in l2 norm, {share:.4g} times the noise"
            but, least = (" apart from the tails", "in truth") if self.notion == "pure DP" else ("", "at least")
            noisy = self.releases != 0  # without releases there is no noise
            rows += [
                (
                    "budget asked",
                    f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"
                    if self.notion in PAIRS
                    else f"{self.notion} with epsilon = {self.epsilon:g}, {FORMULAS[self.notion]}",
                ),
                ("noise gives", f"epsilon = {_number(self.epsilon_exact)} at delta = {self.delta:g}{but}"),
                *([("warning", self.warning)] if self.warning else []),
                *([("tails", f"noise lacks far tails, so delta is {least} {_number(self.smallest_delta)}")] * noisy),
                ("accountant", self.accountant),
                ("trust model", self.trust),
                *([("user-defined", ", ".join(self.user_defined))] if self.user_defined else []),
                ("adjacency", self.adjacency),
                ("privacy unit", self.unit),
            ]
            rows += [
                ("noise", f"std {_number(self.noise_std, 4)} {self.noise_whose}" + (
                          "" if self.server_noise_std is None else
                          f", at most {_number(self.server_noise_std, 4)} in the server's sums")),
                ("releases", f"{of}; kappa = {_number(self.releases_per_user, 4)}"),
            ] * noisy  # fmt: skip
        if self.schedule is not None:
            rows.append(("schedule", self.schedule))
        if self.renyi:
            rows.append(("Renyi curve", ", ".join(f"{_number(bound)} at {alpha:g}" for alpha, bound in self.renyi)))
        if self.zcdp:
            rows.append(("zCDP", f"rho = {_number(self.zcdp[0])} (xi = {self.zcdp[1]:.3g} included)"))
        if self.visits:
            each = (f"{n} have epsilon = {_number(proved)} (advanced composition {_number(advanced)})"
                    for n, _, proved, advanced in self.visits)  # fmt: skip
            apart = f"at delta = {self.visits[0][1]:g}, of visits in different sums (visits in one sum are not covered)"
            rows.append(("visits", f"{apart}: {'; '.join(each)}"))
        if self.bits_per_user:
            rows.append(("a user sends", f"{_number(self.bits_per_user[0])} to {_number(self.bits_per_user[1])} bits"))
        if self.wrap_probability is not None:
            rows.append(("wrapping", f"a sum is decoded wrongly with probability at most {self.wrap_probability:g}"))
        if self.per_silo:
            asked, _, gives = zip(*self.per_silo)
            rows.append(("per silo", f"{len(asked)} budgets, epsilon asked {min(asked):g} to {max(asked):g}, given "
                                     f"{_number(min(gives))} to {_number(max(gives))}"))  # fmt: skip
        if self.not_covered:
            rows.append(("not covered", "; ".join(self.not_covered)))
        return rows


PROOF = "From noise to epsilon"
PLACES = {  # line of a certificate -> its heading in a report; others are under PROOF
    **dict.fromkeys(("claim", "budget asked", "warning", "adjacency", "privacy unit", "visits"), "Protected"),
    **dict.fromkeys(("trust model", "user-defined"), "Trusted"),
    **dict.fromkeys(("not covered", "digest"), "Limits"),
}


HEAD = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>
:root { color-scheme: light dark } dt { font-weight: bold } dd { overflow-wrap: anywhere }
body { max-width: 50em; margin: 1em auto; padding: 0 1em; font-family: sans-serif }</style>"""


def page(title: str, sections: Sequence[tuple[str, Sequence[tuple[str, str]]]], format: str = "markdown") -> str:
    """Formats sections, each a heading and its pairs of (name, text), as a page in Markdown or HTML."""
    if validate.one_of("format", format, ("markdown", "html")) == "html":
        found = [HEAD, f"<title>{html.escape(title)}</title><h1>{html.escape(title)}</h1>"]
        for heading, lines in sections:
            rows = (f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in lines)
            found += [f"<h2>{html.escape(heading)}</h2>\n<dl>", *rows, "</dl>"]
        return "\n".join([*found, "</html>\n"])
    found = [f"# {title}"]
    for heading, lines in sections:
        rows = [f"| {name} | {text} |" for name, text in ((x.replace("|", r"\|") for x in line) for line in lines)]
        found.append("\n".join([f"## {heading}\n", "| | |", "|---|---|", *rows]))
    return "\n\n".join(found) + "\n"


def of_fields(fields: Mapping[str, Any]) -> Certificate:
    """Makes a certificate from these fields, whose tuples may be lists after loading."""
    return Certificate(**{name: _tuples(value) for name, value in fields.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def _number(value: float | None, digits: int = 6) -> str:
    return "unknown" if value is None else f"{value:.{digits}g}"


def no_privacy(reason: str) -> Certificate:
    """Makes a certificate with the claim "none", for algorithms without privacy."""
    return Certificate(claim="none", reason=reason)
