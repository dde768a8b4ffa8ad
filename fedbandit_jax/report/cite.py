"""BibTeX of everything that ran: the papers behind the parts of a result's environments and algorithms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbandit_jax.core import validate
from fedbandit_jax.report.measured import Measured

OWN = """@software{{fedbandit_jax,
  author  = {{{{The fedbandit\\_jax authors}}}},
  title   = {{fedbandit\\_jax: a simulator of differentially private federated bandits}},
  version = {{{version}}},
  year    = {{{year}}},
}}"""
ZHOU, DUBEY, CHOWDHURY, LIU, HE = (
    "zhou2024differentially",
    "dubey2020differentially",
    "chowdhury2023distributed",
    "liu2022federated",
    "he2022simple",
)
PARTS: dict[str, tuple[str, ...]] = {  # the name of a class, or the word that chooses a part -> who is behind it
    "Sphere": (ZHOU,),
    "Gap": (DUBEY,),
    "RandomArms": (CHOWDHURY,),
    "Clustered": (LIU,),
    "UserTable": (LIU,),
    "Drift": ("russac2019weighted",),
    "Lift": ("rahimi2007random",),
    "Rejection": ("li2011unbiased",),
    "LinUCB": ("abbasi2011improved",),
    "Federated": (ZHOU,),
    "AsyncFederated": (HE,),
    "GossipFedUCB": (DUBEY,),
    "LogDetUCB": (DUBEY,),
    "LogDet": (DUBEY,),
    "UCB": ("abbasi2011improved",),
    "Thompson": ("agrawal2013thompson",),
    "EpsilonGreedy": ("auer2002finite",),
    "PhasedElimination": ("li2022differentially",),
    "Forgetting": ("russac2019weighted",),
    "SuccessiveElimination": (CHOWDHURY,),
    "AdaCUCB": ("azize2024concentrated",),
    "FCLUB": (LIU,),
    "CLUB": ("gentile2014online",),
    "SCLUB": ("li2019improved",),
    "Grouped": ("gentile2014online",),
    "laplace": ("sajed2019optimal",),
    "honaker": ("honaker2015efficient",),
    "sqrt_toeplitz": ("fichtenberger2023constant",),
    "blt": ("dvijotham2024efficient",),
    "MultiBlt": ("mcmahan2024hassle",),
    "BandMF": ("choquettechoo2023banded",),
    "Banded": ("kalinin2024banded",),
    "Decaying": ("denisov2022improved",),
    "Discounted": ("bolot2013private",),
    "Logistic": ("li2017provably",),
    "silo_local_matrix": (DUBEY,),
    "median": ("yin2018byzantine",),
    "trimmed_mean": ("yin2018byzantine",),
}
CHOSEN = ("type", "release", "trust", "mechanism", "aggregate")  # fields of an account whose words name a part


def cite(result: Measured) -> str:
    """BibTeX entries of this package and of the papers behind the parts of a result's environments and algorithms.

    Each is preceded by a comment with the parts that it is cited for. Parts of your own are left out, unless they have
    the name of one of ours, and so are ours that have no paper: read the references in the docstrings of what you use.

    Raises:
        TypeError: it is no result.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1)).replace(release="blt")
        >>> result = fb.simulate(env, algo, horizon=50, key=jax.random.key(0), seeds=2)
        >>> print(*[line for line in fb.cite(result).splitlines() if line.startswith("@")])
        @software{fedbandit_jax, @inproceedings{abbasi2011improved, @inproceedings{dvijotham2024efficient, \
@inproceedings{zhou2024differentially,
    """
    validate.instance("result", result, Measured, "an fb.Result")
    found = behind([*result.config["environments"].values(), *result.config["algorithms"].values()])
    told = result.provenance
    own = OWN.format(version=told.get("fedbandit_jax", "unknown"), year=str(told.get("date", ""))[:4])
    known = entries()
    return "\n\n".join([own, *(f"% {', '.join(parts)}\n{known[key]}" for key, parts in sorted(found.items()))])


def behind(accounts: Sequence[Any]) -> dict[str, list[str]]:
    """Key of a paper -> the parts in these accounts of environments and algorithms that it is cited for."""
    found: dict[str, list[str]] = {}
    for part in dict.fromkeys(_words(accounts)):
        for key in PARTS.get(part, ()):
            found.setdefault(key, []).append(part)
    return found


def entries() -> dict[str, str]:
    """Key -> BibTeX entry of every paper that there is a part of."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    return {re.findall(r"{(\w+),", one)[0]: one for one in text.strip().split("\n\n")}


def _words(account: Any) -> Iterator[str]:
    if isinstance(account, Mapping):
        for name, value in account.items():
            if name in CHOSEN and isinstance(value, str):
                yield value
            else:
                yield from _words(value)
    elif isinstance(account, (list, tuple)):
        for one in account:
            yield from _words(one)
