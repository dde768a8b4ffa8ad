"""Certificates as Markdown, LaTeX, pages for reviewers, and side by side."""

import dataclasses
import hashlib
import json
import re
import xml.etree.ElementTree as ET
from html import escape

import numpy as np
import pytest
from helpers import refused
from matplotlib.mathtext import MathTextParser
from scipy.stats import norm

import fedbandit_jax as fb
from fedbandit_jax.certificate import side_by_side

BUDGET, SILOS = fb.privacy.Budget(1.0, 1e-3), fb.envs.sphere(4, 3, 2, rewards="bernoulli").spec
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
