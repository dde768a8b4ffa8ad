"""The JSON schema: saved files obey it, wrong ones are refused, and every field has words."""

import copy
import functools
import json
import zipfile

import jsonschema
import pytest
from helpers import simulate

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(1.0, 1e-3)
ARMS = fb.algos.DistRDPSE(1.0)
SILOS = fb.envs.sphere(4, 3, 2, rewards="bernoulli")


CHECKER = jsonschema.Draft202012Validator(fb.schema())


def errors(text):
    return list(CHECKER.iter_errors(text))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """What the small run saves, whose certificate is called "one"; runs of every family are those of the contract."""
    with zipfile.ZipFile(simulate().save(tmp_path_factory.mktemp("saved") / "run")) as file:
        found = json.loads(file.read("result.json"))
    return json.loads(json.dumps(found).replace(*(f'"{name}"' for name in (*found["certificates"], "one"))))


def test_a_certificate_obeys_as_it_is(text):
    """Also where numbers are infinite."""
    worlds = {fb.algos.FCLUB: fb.envs.clustered(6, 2, 2, dim=3), fb.algos.DistRDPSE: fb.envs.arms(3)}
    silos = fb.algos.private_fed_lin_ucb([BUDGET] * 4)
    for algo in (fb.algos.fed_ucb(BUDGET), silos, fb.algos.FCLUB(BUDGET), ARMS):
        one = algo.certificate(worlds.get(type(algo), SILOS).spec, 50)
        assert not errors({**text, "certificates": {"one": one.to_json()}})
        assert fb.privacy.Certificate.from_json(json.loads(json.dumps(one.to_json(), allow_nan=False))) == one


WRONG = [
    ("certificates.one.claim", "proved"),
    *(("certificates.one.epsilon", value) for value in ("1", -1.0)),
    ("certificates.one.epsilon_exact", "-Infinity"),
    ("certificates.one.delta", 1.5),
    ("certificates.one.releases", -1),
    ("certificates.one.zcdp", [1.0]),
    ("certificates.one.renyi", [[2.0, 1.0, 3.0]]),
    ("certificates.one.not_covered", "nothing"),
    *((f"config.{name}", value) for name, value in {"horizon": 0, "seeds": [[0]], "environments.one.spec": 3}.items()),
    ("format", 1),
    *((f"provenance.{name}", value) for name, value in dict(jax=3, git_commit=3, seconds=-1.0).items()),
]


@pytest.mark.parametrize(("path", "value"), WRONG)
def test_what_is_wrong_is_refused(text, path, value):
    wrong = copy.deepcopy(text)
    *way, last = path.split(".")
    place = functools.reduce(lambda found, name: found[name], way, wrong)
    assert last in place
    place[last] = value
    assert errors(wrong)
    del place[last]
    assert errors(wrong)


def test_what_no_version_writes_is_refused(text):
    """A field that a certificate does not have, maybe a misspelt one; but a run may say more of where it was made."""
    wrong = copy.deepcopy(text)
    wrong["provenance"]["configuration"] = "some runs say more"
    assert not errors(wrong)
    wrong["certificates"]["one"]["epsilon_exakt"] = 1.0
    assert len(errors(wrong)) == 1


def test_it_is_a_schema_whose_every_field_has_words():
    CHECKER.check_schema(CHECKER.schema)
    for name, field in fb.schema()["$defs"]["certificate"]["properties"].items():
        assert len(field["description"]) > 10, name
