"""BibTeX entries of the papers behind a result's environments and algorithms."""

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
TREES = ("chan2011private", "dwork2010differential")
DISCRETE_GAUSSIAN = (CHOWDHURY, "canonne2020discrete", "kairouz2021distributed")
# Name of a class, or the word that chooses a part, alone or after the name of its class -> keys of the papers that its
# docstring cites; () for parts of ours, or older than any paper.
PARTS: dict[str, tuple[str, ...]] = {
    # environments
    "Sphere": (ZHOU,),
    "Gap": (DUBEY,),
    "Replay": (ZHOU,),
    "RandomArms": (CHOWDHURY,),
    "Clustered": (LIU,),
    "UserTable": (LIU,),
    "Logged": (),
    "Script": (),
    "Returning": (),
    "ReturningArms": (),
    "Dropout": (),
    "Delay": (),
    "Drift": ("russac2019weighted",),
    "Lift": ("rahimi2007random", "sutherland2015error"),
    "Corrupt": (),
    "Rejection": ("li2011unbiased",),
    # data, by the name in `fb.data.Fit.source`
    "InstEval": ("bates2015fitting",),
    "STAR": ("mosteller1995tennessee",),
    "MovieLens": ("harper2015movielens",),
    "Open Bandit": ("saito2021open",),
    # algorithms
    "LinUCB": ("abbasi2011improved",),
    "Federated": (ZHOU,),
    "AsyncFederated": (HE,),
    "Gossip": (),
    "GossipFedUCB": (DUBEY,),
    "SE": (CHOWDHURY,),
    "DPSE": (CHOWDHURY, "sajed2019optimal"),
    "CDPSE": (CHOWDHURY,),
    "LDPSE": (CHOWDHURY,),
    "DistDPSE": (CHOWDHURY, "bonawitz2017practical"),
    "DistRDPSE": (CHOWDHURY, "bonawitz2017practical", "agarwal2021skellam"),
    "DistCDPSE": (*DISCRETE_GAUSSIAN, "bonawitz2017practical"),
    "ShuffleDPSE": (CHOWDHURY, "cheu2021pure"),
    "AdaCUCB": ("azize2024concentrated", "azize2022privacy"),
    "FCLUB": (LIU,),
    "CLUB": ("gentile2014online",),
    "SCLUB": ("li2019improved",),
    "Grouped": ("gentile2014online",),
    "Alone": (),
    "Together": (),
    "Mixture": (),
    "Uniform": (),
    "UniformArms": (),
    # policies
    "UCB": ("abbasi2011improved",),
    "LogDetUCB": (DUBEY,),
    "Thompson": ("agrawal2013thompson",),
    "Greedy": (),
    "EpsilonGreedy": ("auer2002finite",),
    "PhasedElimination": ("li2022differentially", "hanna2024differentially"),
    "Forgetting": ("russac2019weighted", "wang2023revisiting", "cheung2019learning"),
    # schedules
    "Every": (),
    "Fixed": (),
    "Geometric": (),
    "LogDet": (DUBEY,),
    "PrivateLogDet": ("dwork2014algorithmic", "vadhan2023concurrent"),
    "zc24": (ZHOU,),
    "dp20": (DUBEY,),
    "he22": (HE,),
    # mechanisms, with Gaussian accounting, and statistics
    "Mechanism": ("balle2018improving", "dong2022gaussian"),
    "Users": ("choquettechoo2023banded",),
    "Linear": (),
    "Logistic": ("li2017provably",),
    # releases
    "tree": (ZHOU, *TREES),
    "sqrt_toeplitz": ("fichtenberger2023constant", "henzinger2023almost"),
    "blt": ("mcmahan2024hassle", "dvijotham2024efficient"),
    "input_perturbation": (),
    "MultiBlt": ("mcmahan2024hassle",),
    "BandMF": ("choquettechoo2023banded", "mckenna2024scaling"),
    "Banded": ("kalinin2024banded",),
    "Decaying": ("denisov2022improved",),
    "Discounted": ("bolot2013private", "kalinin2024banded"),
    "Window": (),
    # trust models, for sums of vectors and of rewards
    "silo_local": (ZHOU,),
    "silo_local_matrix": (DUBEY,),
    "shuffle_amplified": (ZHOU,),
    "shuffle_vector_sum": (ZHOU, "cheu2022shuffle"),
    "secagg": (CHOWDHURY, "bonawitz2017practical"),
    "Mechanism.secagg": DISCRETE_GAUSSIAN,
    "central": (),
    "Mechanism.central": ("shariff2018differentially",),
    "local": (),
    "Mechanism.local": ("zheng2020locally",),
    "GaussianTrust": (),
    # rules of aggregation
    "sum": (),
    "median": ("yin2018byzantine",),
    "trimmed_mean": ("yin2018byzantine",),
    "geometric_median": ("weiszfeld1937point",),
    "Liars": (),
}
# fields of an account that name a part
CHOSEN = ("release", "trust", "aggregate", "trigger", "source")
UNNAMED = ("Replay", "UserTable")  # environments with data that their account does not name


def cite(result: Measured) -> str:
    """Returns BibTeX entries of this package and of the papers behind a result's environments and algorithms.

    A comment before each entry lists the parts that it is cited for. It omits user-defined parts, unless they have the
    name of one of ours, and our parts without a paper. Tables of features or users do not name their data. A comment
    then asks you to cite them; the references are in their loader in `fb.data`.

    Raises:
        TypeError: `result` is not a result.

    Example:
        >>> import jax, fedbandit_jax as fb
        >>> env = fb.envs.sphere(n_agents=4, n_arms=5, dim=3, rewards="bernoulli")
        >>> algo = fb.algos.private_fed_lin_ucb(fb.privacy.Budget(1.0, 0.1)).replace(release="blt")
        >>> result = fb.simulate(env, algo, horizon=50, key=jax.random.key(0), seeds=2)
        >>> print(*[line for line in fb.cite(result).splitlines() if line.startswith("@")])
        @software{fedbandit_jax, @inproceedings{abbasi2011improved, @inproceedings{balle2018improving, \
@article{dong2022gaussian, @inproceedings{dvijotham2024efficient, @inproceedings{mcmahan2024hassle, \
@inproceedings{zhou2024differentially,
    """
    validate.instance("result", result, Measured, "an fb.Result")
    accounts = [*result.config["environments"].values(), *result.config["algorithms"].values()]
    found, words = behind(accounts), set(_words(accounts))
    made_by = result.provenance
    own = OWN.format(version=made_by.get("fedbandit_jax", "unknown"), year=str(made_by.get("date", ""))[:4])
    known = entries()
    notes = [f"% {name}: cite its data, too" for name in UNNAMED if name in words]
    return "\n\n".join([own, *(f"% {', '.join(parts)}\n{known[key]}" for key, parts in sorted(found.items())), *notes])


def behind(accounts: Sequence[Any]) -> dict[str, list[str]]:
    """Returns key of a paper -> parts in these accounts of environments and algorithms that it is cited for."""
    found: dict[str, list[str]] = {}
    for part in dict.fromkeys(_words(accounts)):
        for key in PARTS.get(part, ()):
            parts = found.setdefault(key, [])
            if (name := part.rpartition(".")[2]) not in parts:
                parts.append(name)
    return found


def entries() -> dict[str, str]:
    """Returns key -> BibTeX entry of every paper."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    return {re.findall(r"{(\w+),", one)[0]: one for one in text.strip().split("\n\n")}


def _words(account: Any) -> Iterator[str]:
    """Yields the names of classes in an account, and its words that choose a part, alone and with their class."""
    if isinstance(account, Mapping):
        kind = account.get("type")
        if isinstance(kind, str):
            yield kind
        for name, value in account.items():
            if name in CHOSEN and isinstance(value, str):
                yield from (value, f"{kind}.{value}")
            else:
                yield from _words(value)
    elif isinstance(account, (list, tuple)):
        for one in account:
            yield from _words(one)
