"""What `fb.cite` says: entries for what ran and for nothing else, each of which BibTeX can read."""

import dataclasses
import re

import jax
import pytest
from helpers import Bias

import fedbandit_jax as fb
from fedbandit_jax.certificate import side_by_side
from fedbandit_jax.report import cite as module

BUDGET = fb.privacy.Budget(1.0, 1e-3)


def keys(env, algo, horizon=20):
    result = fb.simulate(env, algo, horizon=horizon, key=jax.random.key(0), seeds=1)
    text = fb.cite(result)
    return set(re.findall(r"@\w+{(\w+),", text)) - {"fedbandit_jax"}, text


def test_a_linear_bandit():
    env = fb.envs.drift(fb.envs.sphere(4, 3, 2, rewards="bernoulli"), 10)
    mechanism = fb.privacy.Mechanism(BUDGET, "honaker")
    algo = fb.algos.Federated(policy=fb.algos.Thompson(), schedule=5, privacy=mechanism)
    found, text = keys(env, algo)
    assert found == {
        "zhou2024differentially",
        "russac2019weighted",
        "agrawal2013thompson",
        "honaker2015efficient",
    }
    assert "% Sphere, Federated\n@inproceedings{zhou2024differentially," in text
    assert f"version = {{{fb.__version__}}}" in text


def test_arms():
    found, _ = keys(fb.envs.arms(3), fb.algos.AdaCUCB(epsilon=1.0, mechanism="discrete_laplace", trust="secagg"), 500)
    assert found == {"chowdhury2023distributed", "azize2024concentrated"}


def test_parts_of_ones_own_are_left_out():
    @fb.pytree
    class UCB(Bias):  # a name that is also one of ours
        pass

    env = fb.envs.script([[[[1.0], [0.5]]]] * 20, [[[1.0, 0.0]]] * 20)
    found, _ = keys(env, fb.algos.Federated(policy=UCB(), schedule=5))
    assert found == {"zhou2024differentially", "abbasi2011improved"}  # an account has names only


def test_a_class_with_a_reference_is_cited():
    """But for those whose reference is that of what they are part of."""
    rooms = (fb.envs, fb.algos, fb.privacy, fb.schedules)
    classes = {one.__name__: one for room in rooms for one in vars(room).values() if isinstance(one, type)}
    named = {name for name, one in classes.items() if re.search(r"^\s*Reference: (?!ours)", one.__doc__ or "", re.M)}
    assert named - set(module.PARTS) == {"Mechanism", "Release", "Users"}


def test_every_entry_is_read_and_used():
    known = module.entries()
    assert {key for parts in module.PARTS.values() for key in parts} == set(known)
    for entry in known.values():
        assert entry.count("{") == entry.count("}")
        assert {"author", "title", "year"} <= set(re.findall(r"^  (\w+) *=", entry, re.M))


def test_every_part_has_the_name_of_one():
    """A class of the package, or a word that chooses a release, a noise or a rule."""
    rooms = (fb.envs, fb.algos, fb.privacy, fb.schedules)
    words = {
        *fb.privacy.RELEASES,
        *fb.privacy.AGGREGATES,
        *fb.privacy.TRUST,
        *(name for pair in fb.algos.ELIMINATION.values() for name in pair),
    }
    assert not [name for name in module.PARTS if name not in words and not any(hasattr(room, name) for room in rooms)]


def test_what_is_no_result():
    with pytest.raises(TypeError, match="result must be an fb.Result, got 7"):
        fb.cite(7)


def test_a_certificate_in_a_paper():
    """The same lines in Markdown and in LaTeX, in which nothing is a command that was text."""
    env = fb.envs.sphere(4, 3, 2, rewards="bernoulli")
    certificate = fb.algos.private_fed_lin_ucb(BUDGET).certificate(env.spec, 50)
    names = [name for name, _ in certificate.lines()]
    markdown, latex = certificate.to_markdown().splitlines(), certificate.to_latex()
    assert [line.split(" | ")[0].strip("| ") for line in markdown[2:]] == names
    assert re.findall(r"\\item\[(.*?)\] ", latex) == names
    special = re.findall(r"(?<!\\)[#%&_]", latex)
    assert not special
    text = latex.replace("\\_", "_").replace("$<$", "<").replace("$>$", ">").replace(r"\^{}", "^")
    assert all(value in text for _, value in certificate.lines())
    assert str(certificate).split() == [
        word for name, value in certificate.lines() for word in f"{name} {value}".split()
    ]


def test_certificates_side_by_side():
    """Every line of every certificate once, under the numbers of those that say it; one alone is printed as it is."""
    env = fb.envs.sphere(4, 3, 2, rewards="bernoulli")
    late = fb.algos.private_fed_lin_ucb(BUDGET)
    raw = fb.algos.private_fed_lin_ucb(BUDGET, learns_in_batch=True)
    algos = {"raw": raw, "late": late, "again": late}
    proofs = {label: algo.certificate(env.spec, 50) for label, algo in algos.items()}
    head, _, rows = side_by_side(proofs).partition("\n\n")
    assert head.splitlines()[1:] == ["[1] raw", "[2] late", "[3] again"]
    text = " ".join(rows.split())
    lines = {line for one in proofs.values() for line in dataclasses.replace(one, not_covered=()).lines()}
    assert all(text.count(name) >= 1 and text.count(words) >= 1 for name, words in lines)
    for once in (
        "claim [1] as_printed: holds for",
        "[2, 3] certified: noise of known law is on every statistic that leaves the mechanism budget asked epsilon",
        "not covered [1] actions inside a batch, which use raw statistics the number of users, which is public; a",
        "what a simulator keeps",
    ):
        assert text.count(once) == 1
    assert side_by_side({"raw": proofs["raw"]}) == f"Certificate of raw\n{proofs['raw']}"
