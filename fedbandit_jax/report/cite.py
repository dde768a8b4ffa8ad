"""BibTeX entries of the papers behind a result's environments and algorithms."""

from __future__ import annotations

import functools
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
# fields of an account that name a part
CHOSEN = ("release", "trust", "aggregate", "trigger", "source")
UNNAMED = ("Replay", "UserTable")  # environments with data that their account does not name


def cite(result: Measured) -> str:
    """Returns BibTeX entries of this package and of the papers behind a result's environments and algorithms.

    A comment before each entry lists the parts that it is cited for. It omits user-defined parts, unless they have the
    name of one of ours, and our parts without a paper. Tables of features or users do not name their data. A comment
    then asks you to cite them. The references are in their loader in `fb.data`.

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
    found, words, known = behind(accounts), set(_words(accounts)), papers()[1]
    made_by = result.provenance
    own = OWN.format(version=made_by.get("fedbandit_jax", "unknown"), year=str(made_by.get("date", ""))[:4])
    notes = [f"% {name}: cite its data, too" for name in UNNAMED if name in words]
    return "\n\n".join([own, *(f"% {', '.join(parts)}\n{known[key]}" for key, parts in sorted(found.items())), *notes])


def behind(accounts: Sequence[Any]) -> dict[str, list[str]]:
    """Returns key of a paper -> parts in these accounts of environments and algorithms that it is cited for."""
    found: dict[str, dict[str, None]] = {}
    for part in _words(accounts):
        for key in papers()[0].get(part, ()):
            found.setdefault(key, {})[part.rpartition(".")[2]] = None
    return {key: list(parts) for key, parts in found.items()}


@functools.cache
def papers() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Returns part -> keys of its papers, and key -> BibTeX entry, from references.bib and its comments."""
    parts: dict[str, list[str]] = {}
    entries: dict[str, str] = {}
    for block in Path(__file__).with_name("references.bib").read_text(encoding="utf-8").strip().split("\n\n"):
        comments, at, entry = block.partition("@")
        keys = re.findall(r"{(\w+),", entry)[:1]
        entries |= dict.fromkeys(keys, at + entry)
        for part in comments.strip().rpartition("% ")[2].split(", "):
            parts.setdefault(part, []).extend(keys)
    return parts, entries


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
