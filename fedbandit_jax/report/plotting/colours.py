"""Styles of curves: colour by the algorithm, line by the claim, and a marker.

An algorithm has the same colour in every figure, also with other numbers such as the budget. Curves of a figure with
the same colour, such as variants of an algorithm, have different markers. The line style always shows the claim of the
certificate.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from matplotlib.colors import is_color_like, to_hex

from fedbandit_jax.certificate import Certificate
from fedbandit_jax.core import validate
from fedbandit_jax.core.validate import BadType, BadValue
from fedbandit_jax.report.result import Result

# Okabe & Ito (2008), Color Universal Design, https://jfly.uni-koeln.de/color/: readable with any colour vision. Its
# yellow is too pale for a line on white; wine and indigo are from a palette of Tol (2021).
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255")
BLACK, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, WINE = COLOURS
GREY, INDIGO = "#666666", "#332288"
UNIFORM = ("Uniform", "UniformArms")  # classes of uniform play
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "<", ">")
CLAIMS = {  # claim of a certificate -> line style and words in the legend
    "certified": ("-", "certified"),
    "as_printed": ("--", "weaker than stated"),
    "none": (":", "no privacy claim"),
}

_ONE = {"alpha_1": (math.inf,), "alpha_2": (math.inf,)}  # FCLUB with a single cluster
_UCB: dict[str, Any] = {"type": ("Federated",), "policy.type": ("UCB", "LogDetUCB")}
_SILOS: dict[str, Any] = {**_UCB, "privacy.trust": ("silo_local", "silo_local_matrix", None)}  # None: the default
# Parts of an algorithm -> colour; the first row with matching values decides.
_TABLE: tuple[tuple[dict[str, tuple[Any, ...]], str], ...] = (
    ({**_UCB, "privacy": (None,)}, BLACK),  # FedLinUCB, FedUCB
    ({**_UCB, "schedule.type": ("LogDet",)}, PURPLE),  # raw data trigger synchronisations
    ({**_UCB, "schedule.type": ("PrivateLogDet",)}, ORANGE),
    ({**_UCB, "schedule.type": ("Geometric",)}, SKY),
    ({**_UCB, "privacy.trust": ("secagg",)}, GREEN),
    ({**_UCB, "privacy.trust": ("shuffle_amplified", "shuffle_vector_sum")}, PURPLE),
    ({**_UCB, "privacy.trust": ("central",)}, ORANGE),
    ({**_UCB, "privacy.trust": ("local",)}, SKY),
    ({**_SILOS, "privacy.release": ("tree", None)}, BLUE),  # Private-FedLinUCB of the papers
    (_SILOS, VERMILLION),  # other releases
    ({"type": ("Federated",), "policy.type": ("Greedy",), "privacy": (None,)}, GREY),
    ({"type": ("Federated",), "policy.type": ("Greedy",)}, ORANGE),
    ({"type": ("GossipFedUCB", "Gossip"), "privacy": (None,)}, GREEN),
    ({"type": ("GossipFedUCB", "Gossip")}, VERMILLION),
    ({"type": ("LinUCB",)}, SKY),
    ({"type": ("SE",)}, BLACK),
    ({"type": ("DPSE",)}, BLUE),
    ({"type": ("CDPSE",)}, ORANGE),
    ({"type": ("LDPSE",)}, SKY),
    ({"type": ("DistDPSE",)}, VERMILLION),
    ({"type": ("DistRDPSE",)}, GREEN),
    ({"type": ("DistCDPSE", "ShuffleDPSE")}, PURPLE),
    ({"type": ("RRSE",)}, INDIGO),
    ({"type": ("TruncatedSE",), "sums.type": ("SE",)}, GREY),
    ({"type": ("TruncatedSE",)}, WINE),
    ({"type": ("AdaCUCB",)}, WINE),
    ({"type": ("PhasedKLUCB", "PhasedIMED"), "sums.type": ("SE",)}, GREY),
    ({"type": ("PhasedKLUCB", "PhasedIMED")}, INDIGO),
    ({"type": ("ThompsonArms",)}, SKY),
    ({"type": ("PhasedThompson",), "sums.type": ("SE",)}, GREY),
    ({"type": ("PhasedThompson",)}, PURPLE),
    ({"type": ("FCLUB",), **_ONE}, GREEN),  # Homo, Homo-DC and both with CDP
    ({"type": ("FCLUB",), "budget": (None,), "upload": (1,), "download": (1,)}, BLACK),  # FCLUB
    ({"type": ("FCLUB",), "budget": (None,)}, BLUE),  # FCLUB-DC
    ({"type": ("FCLUB",)}, VERMILLION),  # CDP-FCLUB-DC
    ({"type": ("CLUB",)}, ORANGE),
    ({"type": ("SCLUB",)}, PURPLE),
    ({"type": UNIFORM}, "#999999"),
)
_OTHERS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)  # of algorithms outside of the table


class Style(NamedTuple):
    """Style of one configuration's curve."""

    colour: str
    line: str
    marker: str  # "" for the first curve of a colour
    claim: str  # words for the legend; "" without privacy


def colour(algorithm: Any) -> str:
    """Returns the colour of an algorithm, equal in all figures.

    It depends on class, policy, schedule, trust model and release, not on name or numbers. A user-defined algorithm has
    a colour too, by a digest of its parts.

    Args:
        algorithm: an `fb.Algorithm`, its account in `result.config["algorithms"]`, or its result.

    Example:
        >>> import fedbandit_jax as fb
        >>> fb.plotting.colour(fb.algos.fed_lin_ucb()), fb.plotting.colour(fb.algos.fed_lin_ucb(name="mine"))
        ('#000000', '#000000')
    """
    if isinstance(algorithm, Result):
        if len(algorithm) != 1:
            raise BadValue("algorithm", "must be the result of one algorithm", algorithm)
        algorithm = algorithm.config["algorithms"][algorithm.labels[0]]
    if not isinstance(algorithm, Mapping) and not (dataclasses.is_dataclass(algorithm) and hasattr(algorithm, "bind")):
        raise BadType("algorithm", "must be an fb.Algorithm or the result of one", algorithm)
    account = _account(algorithm)
    for parts, found in _TABLE:
        if all(_part(account, path) in values for path, values in parts.items()):
            return found
    return _OTHERS[zlib.crc32("\n".join(_kind("", account)).encode()) % len(_OTHERS)]


def drawn(colour: str) -> str:
    """Returns the drawn colour: black is matplotlib's text colour, white in dark styles."""
    return to_hex(plt.rcParams["text.color"]) if colour == BLACK else colour


def styles(result: Result, colours: Mapping[str, str] | None = None) -> dict[str, Style]:
    """Returns colour, line and marker of every label.

    Solid lines are certified or not private, dashed ones weaker than stated, dotted ones without a claim.
    Uniform play is dash-dotted.

    Args:
        result: result of one or several algorithms.
        colours: label, or algorithm of the sweep -> your colour; default: `colour`.
    """
    validate.instance("result", result, Result, "an fb.Result")
    for its in (own := checked_keys("colours", colours, result)).values():
        if not is_color_like(its):
            raise BadValue("colours", "must be colours of matplotlib", its)
    accounts, found = result.config["algorithms"], {}
    chosen = {
        label: own.get(label, own.get(point["algorithm"], drawn(colour(accounts[label]))))
        for label, point in result.coordinates.items()
    }
    for (label, its), marker in zip(chosen.items(), told_apart([*chosen.values()], ("", *MARKERS))):
        line, claim = promise(result.certificates[label])
        found[label] = Style(its, "-." if accounts[label].get("type") in UNIFORM else line, marker, claim)
    return found


def checked_keys(argument: str, given: Mapping[str, Any] | None, result: Result) -> Mapping[str, Any]:
    """Checks that the keys of a mapping are labels of a result, or algorithms of the sweep without its parameters."""
    validate.instance(argument, given, (Mapping, type(None)), f"a mapping of labels to {argument}, or None")
    algorithms = (point["algorithm"] for point in result.coordinates.values())
    known = dict.fromkeys([*algorithms, *result.labels])
    for key in given or {}:
        validate.one_of(argument, key, known)
    return given or {}


def promise(certificate: Certificate) -> tuple[str, str]:
    """Returns the line style and the words in the legend for the claim of a certificate."""
    if certificate.epsilon is None and certificate.user_defined:  # its behaviour is unknown
        return CLAIMS["none"]
    if certificate.epsilon is None:  # not private
        return "-", ""
    line, claim = CLAIMS[certificate.claim]
    return line, claim if certificate.notion == Certificate.notion else f"{claim}, {certificate.notion}"


def entry(name: str, claim: str) -> str:
    """Formats the entry of a curve in a legend: its name and claim.

    >>> entry("tree", "certified"), entry("FedLinUCB", ""), entry("not private, greedy", "")
    ('tree: certified', 'FedLinUCB: not private', 'not private, greedy')
    """
    claim = claim or ("" if "not private" in name else "not private")
    return f"{name}: {claim}" if claim else name


def told_apart(colours: Sequence[str], markers: Sequence[str]) -> list[str]:
    """Chooses a marker for every curve, distinct among curves of one colour.

    >>> told_apart(["red", "blue", "red"], ["", "o", "s"])
    ['', '', 'o']
    """
    return [markers[colours[:i].count(one) % len(markers)] for i, one in enumerate(colours)]


def _account(value: Any) -> Any:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    parts = {field.name: _account(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"type": type(value).__name__, **parts}


def _part(account: Any, path: str) -> Any:
    for name in path.split("."):
        account = account.get(name) if isinstance(account, Mapping) else None
    return account


def _kind(path: str, value: Any) -> Iterator[str]:
    """Yields the classes and words of an account, without its name and numbers."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            if name != "name":
                yield from _kind(f"{path}.{name}", part)
    elif isinstance(value, str) or value is None:
        yield f"{path} {value}"
