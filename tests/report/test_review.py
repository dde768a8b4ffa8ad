"""Pages of certificates for reviewers."""

import hashlib
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html import escape

import numpy as np
import pytest
from handmade import grid
from scipy.stats import norm

import fedbandit_jax as fb
from fedbandit_jax.certificate import page
from fedbandit_jax.cli import main

BUDGET, SILOS = fb.privacy.Budget(1.0, 1e-3), fb.envs.sphere(4, 3, 2, rewards="bernoulli").spec
ABOUT = [("instance", "a | b < c_1")]
CERTIFICATES = {  # and whether all noise is Gaussian
    "raw": (fb.algos.private_fed_lin_ucb(BUDGET, learns_in_batch=True).certificate(SILOS, 50), True),
    "secagg": (fb.algos.Federated(privacy=fb.privacy.Mechanism(BUDGET, trust="secagg")).certificate(SILOS, 50), False),
    "renyi": (fb.algos.DistRDPSE(1.0).certificate(fb.envs.arms(3).spec, 1000), False),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_report_for_a_reviewer(name):
    """Every line of the certificate stands under one heading, in both formats, and the equation holds."""
    certificate, gaussian = CERTIFICATES[name]
    sections = [("Run", ABOUT), *certificate.sections()]
    markdown, html = (page("T_1", sections, kind) for kind in ("markdown", "html"))
    for name, text in [*ABOUT, *certificate.lines()]:
        assert f"| {name} | {text.replace('|', chr(92) + '|')} |" in markdown
        assert f"<dt>{name}</dt><dd>{escape(text)}</dd>" in html
    rows = len(re.findall(r"(?m)^\| \w", markdown)) - gaussian  # its equation
    assert rows == len([*ABOUT, *certificate.lines(), "digest"]) == html.count("<dt>") - gaussian
    ET.fromstring(re.sub("<!.*?>\\n|<meta.*?>", "", html))
    assert markdown.startswith("# T_1\n")
    assert ("equation" in markdown) == gaussian
    if gaussian:
        mu, epsilon, delta = (
            float(re.findall(rf"{name} = (\d[\d.e-]*\d)", markdown)[-1]) for name in ("mu", "epsilon", "delta")
        )
        tails = [norm.cdf(side * mu / 2 - epsilon / mu) for side in (1, -1)]
        assert tails[0] - np.exp(epsilon) * tails[1] == pytest.approx(delta, rel=1e-3)
    assert markdown.endswith(certificate.report().removeprefix("# Privacy report\n\n"))
    assert hashlib.sha256(json.dumps(certificate.to_json(), sort_keys=True).encode()).hexdigest() in markdown


def test_a_report_on_the_command_line(tmp_path, capsys):
    """Of every label, with what was run, by which versions and when."""
    result = grid()
    path = str(result.save(tmp_path / "grid"))
    for kind, ending in (("markdown", "md"), ("html", "html")):
        out = tmp_path / f"privacy.{ending}"
        assert main(["show", path, "--report", str(out)]) == 0
        assert str(out) in capsys.readouterr().out
        assert out.read_text() == result.report(kind)
    text = result.report()
    for label in result:
        assert f"## {label}\n" in text
    assert text.count("| instance | 3 agents") == text.count("| date | ") == text.count("sha256") == len(result)
    assert main(["show", path, "--report", "privacy.pdf"]) == 2
    assert "--report must" in capsys.readouterr().err


def test_needs_no_jax(tmp_path):
    path = grid().save(tmp_path / "run")
    code = "import sys; sys.modules['jax'] = None\nfrom fedbandit_jax.cli import main\n"
    code += f"main(['show', {str(path)!r}, '--picture', {str(tmp_path / 'again.png')!r}])"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (tmp_path / "again.png").exists()
