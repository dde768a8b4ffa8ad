"""What `fb.cite` says: entries for what ran and for nothing else, each of which BibTeX can read."""

import dataclasses
import hashlib
import inspect
import json
import re
import xml.etree.ElementTree as ET
from html import escape

import numpy as np
import pytest
from handmade import made
from helpers import Bias, refused
from matplotlib.mathtext import MathTextParser
from scipy.stats import norm

import fedbandit_jax as fb
from fedbandit_jax.certificate import side_by_side
from fedbandit_jax.engine.identity import describe
from fedbandit_jax.report import cite as module
from fedbandit_jax.schedules.adaptive import TRIGGERS

BUDGET, SPHERE = fb.privacy.Budget(1.0, 1e-3), fb.envs.sphere(4, 3, 2, rewards="bernoulli")
SE = "chowdhury2023distributed"  # under any mechanism
ROOMS = (fb.envs, fb.algos, fb.privacy, fb.schedules)
NOISE = {"balle2018improving", "dong2022gaussian"}  # of any mechanism
WORDS = {  # that choose a release, a noise, a rule, and the names of data
    *fb.privacy.RELEASES,
    *fb.privacy.AGGREGATES,
    *fb.privacy.TRUST,
    *TRIGGERS,
    *re.findall(r'framed\(frame, "(.+?)"', inspect.getsource(inspect.getmodule(fb.data.star))),
}  # fmt: skip


def keys(env, algo):
    result = made(labels=["one"])
    config = result.config | {"environments": {"one": describe(env)}, "algorithms": {"one": describe(algo)}}
    text = fb.cite(dataclasses.replace(result, config=config))
    return set(re.findall(r"@\w+{(\w+),", text)) - {"fedbandit_jax"}, text


def test_a_linear_bandit():
    mechanism = fb.privacy.Mechanism(BUDGET, "blt")
    found, text = keys(SPHERE, fb.algos.Federated(policy=fb.algos.Thompson(), schedule=5, privacy=mechanism))
    assert (
        found
        == {"zhou2024differentially", "agrawal2013thompson", "dvijotham2024efficient", "mcmahan2024hassle"} | NOISE
    )
    assert "% Sphere, Federated, silo_local\n@inproceedings{zhou2024differentially," in text
    assert "version = {0.1}" in text  # by which the result was made


TREE = {"zhou2024differentially", "chan2011private", "dwork2010differential"}
DISCRETE = {SE, "canonne2020discrete", "kairouz2021distributed"}


SUMS = {
    fb.algos.DistRDPSE: {"agarwal2021skellam", "bonawitz2017practical"},
    fb.algos.CDPSE: set(),
    fb.algos.ShuffleDPSE: {"cheu2021pure"},
    fb.algos.DPSE: {"sajed2019optimal"},
}


PARTS = [
    (fb.privacy.Mechanism(BUDGET), TREE | NOISE),
    (fb.privacy.Mechanism(BUDGET, trust="shuffle_vector_sum"), TREE | NOISE | {"cheu2022shuffle"}),
    (fb.privacy.Mechanism(BUDGET, trust="secagg"), TREE | NOISE | DISCRETE | {"bonawitz2017practical"}),
    (fb.privacy.Mechanism(BUDGET, "input_perturbation", "central"), NOISE | {"shariff2018differentially"}),
    *((kind(1.0), papers | {SE}) for kind, papers in SUMS.items()),
    (
        fb.algos.AdaCUCB(fb.algos.DistDPSE(1.0, radius="exact")),
        {SE, "azize2024concentrated", "azize2022privacy", "bonawitz2017practical"},
    ),
    (
        fb.schedules.PrivateLogDet(1.0, trigger="he22"),
        {"dwork2014algorithmic", "vadhan2023concurrent", "he2022simple"},
    ),
    (fb.privacy.BandMF(3, fb.privacy.Users(2, apart=3)), {"choquettechoo2023banded", "mckenna2024scaling"}),
]


def test_a_part_of_a_run():
    """Words such as "central" and "secagg" stand for the papers of what they are chosen in."""
    for part, papers in PARTS:
        assert set(module.behind([describe(part)])) == papers


def test_data_are_cited_or_asked_for():
    """A result says what a log is called, but of a table of features only that there is one."""
    fit = {"type": "Logged", "fit": {"type": "Fit", "source": "STAR"}}
    assert set(module.behind([fit, {"type": "Drift"}])) == {"mosteller1995tennessee", "russac2019weighted"}
    env = fb.envs.replay(np.eye(2), [1, 1], [0.1, 0.2], n_agents=2)
    found, text = keys(env, fb.algos.LinUCB())
    assert found == {"abbasi2011improved", "zhou2024differentially"}
    assert "Replay" in text.splitlines()[-1]


def test_parts_of_ones_own_are_left_out():
    @fb.pytree
    class UCB(Bias):  # a name that is also one of ours
        pass

    env = fb.envs.script([[[[1.0], [0.5]]]] * 20, [[[1.0, 0.0]]] * 20)
    found, _ = keys(env, fb.algos.Federated(policy=UCB(), schedule=5))
    assert found == {"zhou2024differentially", "abbasi2011improved"}  # an account has names only


def test_every_part_is_in_the_table():
    """Every class that an account may name, and every word that chooses a part, has papers or is said to be ours."""
    classes = {one.__name__: one for room in ROOMS for one in vars(room).values() if isinstance(one, type)}
    bases = (fb.privacy.Release, fb.privacy.Statistic, fb.algos.Grouping, fb.Policy, fb.Recipe, fb.schedules.Schedule)
    inner = (*bases, fb.privacy.Mechanism, fb.privacy.Users, fb.privacy.GaussianTrust, fb.privacy.Liars)
    parts = {name for name, one in classes.items() if one not in bases and issubclass(one, inner)}
    worlds = {one.__name__ for one in vars(fb.envs).values() if isinstance(one, type)}
    assert len(parts | worlds) > 45
    cited, _ = module.papers()
    assert not {*parts, *worlds, *WORDS} - set(cited)
    cites = {name for name, one in classes.items() if re.search(r"^\s*Reference: (?!ours)", one.__doc__ or "", re.M)}
    assert {name for name in cites if not cited.get(name)} == {"Release"}  # but for the interface
    names = {name for part in cited for name in part.split(".")}
    assert not [name for name in names if name not in WORDS and not any(hasattr(room, name) for room in ROOMS)]


def test_every_entry_is_read_and_used():
    cited, known = module.papers()
    assert list(known) == sorted(known)
    assert {key for parts in cited.values() for key in parts} == set(known)
    for entry in known.values():
        assert entry.count("{") == entry.count("}")
        fields = set(re.findall(r"^  (\w+) *=", entry, re.M))
        assert {"author", "title", "year"} <= fields
        assert fields & {"booktitle", "journal", "howpublished"}, entry


SILOS = SPHERE.spec
FAMILIES = {
    "tree": lambda: fb.algos.private_fed_lin_ucb(BUDGET).certificate(SILOS, 50),
    "secagg": lambda: fb.algos.Federated(privacy=fb.privacy.Mechanism(BUDGET, trust="secagg")).certificate(SILOS, 50),
    "nearly Gaussian": lambda: fb.algos.Federated(
        schedule=5, privacy=fb.privacy.Mechanism(fb.privacy.Budget(1.0, 0.1), trust="secagg", release="blt")
    ).certificate(SILOS, 40),
    "raw": lambda: fb.algos.private_fed_lin_ucb(BUDGET, learns_in_batch=True).certificate(SILOS, 50),
    "leak": lambda: fb.algos.fed_ucb(BUDGET).certificate(SILOS, 20),
    "clusters": lambda: fb.algos.FCLUB(BUDGET).certificate(fb.envs.clustered(6, 2, 2, dim=3).spec, 50),
    "renyi": lambda: fb.algos.DistRDPSE(1.0).certificate(fb.envs.arms(3).spec, 1000),
    "zcdp": lambda: fb.algos.DistCDPSE(1.0).certificate(fb.envs.arms(3).spec, 1000),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_certificate_in_a_paper(family):
    """The same lines in Markdown and in LaTeX, whose formulas are formulas and in which no text is a command."""
    certificate = FAMILIES[family]()
    markdown, latex = certificate.to_markdown().splitlines(), certificate.to_latex().splitlines()
    assert [line[2:-2].split(" | ", 1) for line in markdown[2:]] == [list(line) for line in certificate.lines()]
    assert (latex[0], latex[-1]) == (r"\begin{description}", r"\end{description}")
    for (name, value), line in zip(certificate.lines(), latex[1:-1], strict=True):
        pieces = re.split(r"(?<!\\)\$", line.removeprefix(r"  \item").replace(r"R\'enyi", "Renyi"))
        words, formulas = "".join(pieces[::2]), pieces[1::2]
        assert len(pieces) % 2 == 1, f"a formula has no end: {line}"
        assert words.startswith(f"[{name}] ")
        assert not re.search(r"(?<!\\)[#%&_{}$~^<>]|\\(?![#%&_{}$])", words), f"it is a command: {line}"
        letters = r"\b(?:epsilon|delta|alpha|rho|kappa|xi|inf|sqrt)\b"
        assert not re.search(rf"{letters}|x x'|\de[-+]?\d", words), f"it is a formula: {line}"
        kept = re.findall(r"[A-Za-z]{3,}", re.sub(letters, "", value))
        assert re.findall(r"[A-Za-z]{3,}", words.removeprefix(f"[{name}]")) == kept
        for formula in formulas:
            MathTextParser("path").parse(f"${formula}$")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_report_for_a_reviewer(family):
    """Every line of the certificate stands under one heading, in all three formats, and the equation holds."""
    certificate = FAMILIES[family]()
    about = [("instance", "a | b < c_1")]
    markdown, html, latex = (certificate.report(kind, title="T_1", about=about) for kind in REPORTS)
    for name, text in [*about, *certificate.lines()]:
        assert f"| {name} | {text.replace('|', chr(92) + '|')} |" in markdown
        assert f"<dt>{name}</dt><dd>{escape(text)}</dd>" in html
    assert latex.count(r"\item[") == html.count("<dt>") == len(re.findall(r"(?m)^\| \w", markdown))
    assert (markdown[:6], latex[:15]) == ("# T_1\n", r"\section*{T\_1}")
    ET.fromstring(re.sub("<!.*?>\n|<meta.*?>", "", html))
    assert ("equation" in markdown) == (family in ("tree", "raw"))  # others are not Gaussian, or have no proof
    if "equation" in markdown:
        mu, epsilon, delta = (float(re.findall(rf"{name} = (\d[\d.e-]*\d)", markdown)[-1]) for name in EQUATION)
        tails = [norm.cdf(side * mu / 2 - epsilon / mu) for side in (1, -1)]
        assert tails[0] - np.exp(epsilon) * tails[1] == pytest.approx(delta, rel=1e-3)
    digest = hashlib.sha256(json.dumps(certificate.to_json(), sort_keys=True).encode()).hexdigest()
    assert digest in markdown
    with refused("format", "pdf"):
        certificate.report("pdf")


REPORTS, EQUATION = ("markdown", "html", "latex"), ("mu", "epsilon", "delta")
FORMULAS = {
    "epsilon = 1, delta = 1e-06": r"$(\varepsilon, \delta) = (1, 10^{-6})$",
    "epsilon = 0.5 at delta = 2.5e-10": r"$\varepsilon = 0.5$ at $\delta = 2.5 \times 10^{-10}$",
    "11e-5, 1e+07 or 0.1e-3": r"$11 \times 10^{-5}$, $10^{7}$ or $0.1 \times 10^{-3}$",
    "1 / sqrt 2 of it off the diagonal of x x'": r"$1 / \sqrt{2}$ of it off the diagonal of $x x^\top$",
    "sqrt 2 of it, moved by 4 in l2 norm": r"$\sqrt{2}$ of it, moved by 4 in $\ell_2$ norm",
    "rho = 0.5 (xi = 0 included); kappa = 4": r"$\rho = 0.5$ ($\xi = 0$ included); $\kappa = 4$",
    "rho = epsilon^2 / 2, (epsilon, delta)-DP": r"$\rho = \varepsilon^2 / 2$, ($\varepsilon$, $\delta$)-DP",
    "a reward in [0, 1], (x_t, y_t), sha256": r"a reward in $[0, 1]$, $(x_t, y_t)$, sha256",
    r"my_delta_1: 50 % of $x$ ~ {y} ^ \z < #1": r"my\_delta\_1: 50 \% of \$x\$ \~{} \{y\} \^{} "
    r"\textbackslash{}z $<$ \#1",
}


def test_formulas_of_a_certificate():
    for text, formula in FORMULAS.items():
        latex = fb.privacy.Certificate(claim="none", reason=text).to_latex()
        assert latex.splitlines()[1] == rf"  \item[claim] none: {formula}"


def test_certificates_side_by_side():
    """Every line of every certificate once, under the numbers of those that say it; one alone is printed as it is."""
    proofs = {"raw": FAMILIES["raw"](), "late": FAMILIES["tree"](), "again": FAMILIES["tree"]()}
    head, _, rows = side_by_side(proofs).partition("\n\n")
    assert head.splitlines()[1:] == ["[1] raw", "[2] late", "[3] again"]
    text = " ".join(rows.split())
    for one in proofs.values():
        for name, words in dataclasses.replace(one, not_covered=()).lines():
            assert name in text
            assert words in text
    assert text.count("claim [1] as_printed: ") == text.count("[2, 3] certified: ") == 1
    (_, asked) = next(line for line in proofs["late"].lines() if line[0] == "budget asked")
    assert text.count(asked) == 1
    assert side_by_side({"raw": proofs["raw"]}) == f"Certificate of raw\n{proofs['raw']}"
