"""The JSON schema: what is saved obeys it, what is not as it should be is refused, and every field has words."""

import copy
import functools
import json
import zipfile

import jax
import jsonschema
import pytest
from helpers import deep

import fedbandit_jax as fb

BUDGET = fb.privacy.Budget(1.0, 1e-3)
ARMS = fb.algos.SuccessiveElimination(epsilon=1.0, mechanism="skellam", trust="secagg")
SILOS = fb.envs.sphere(4, 3, 2, rewards="bernoulli")
RUNS = {  # visits and bits of arms; an infinite epsilon; budgets of silos and a grid; gauges of clusters
    "arms": lambda **at: fb.simulate(fb.envs.arms(3), ARMS, horizon=200, **at),
    "leak": lambda **at: fb.simulate(SILOS, fb.algos.fed_ucb(BUDGET), horizon=20, **at),
    "silos": lambda **at: fb.sweep(
        SILOS, [fb.algos.fed_lin_ucb(), fb.algos.private_fed_lin_ucb(BUDGET)], grid={"epsilon": [1.0, 2.0]}, horizon=20,
        **at,
    ),
    "clusters": lambda **at: fb.simulate(fb.envs.clustered(6, 2, 2, dim=3), fb.algos.FCLUB(BUDGET), horizon=20, **at),
}  # fmt: skip


def refuse(word):
    raise ValueError(f"{word} is not JSON")


def checker():
    jsonschema.Draft202012Validator.check_schema(fb.schema())
    return jsonschema.Draft202012Validator(fb.schema())


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """What a run saves, by the name of the run."""
    folder = tmp_path_factory.mktemp("saved")

    @functools.cache
    def text(name):
        with zipfile.ZipFile(RUNS[name](key=jax.random.key(0), seeds=1).save(folder / name)) as file:
            return json.loads(file.read("result.json"), parse_constant=refuse)

    return text


@pytest.mark.parametrize("name", deep(RUNS, keep=(0, 2)))
def test_what_is_saved_obeys(text, name):
    assert not list(checker().iter_errors(text(name)))


def test_a_certificate_obeys_as_it_is():
    algo = fb.algos.fed_ucb(BUDGET)
    one = algo.certificate(SILOS.spec, 20)
    assert one.epsilon_exact == float("inf")
    schema = {"$defs": fb.schema()["$defs"], "$ref": "#/$defs/certificate"}
    jsonschema.validate(one.to_json(), schema, jsonschema.Draft202012Validator)
    text = json.dumps(one.to_json(), allow_nan=False)
    assert fb.privacy.Certificate.from_json(json.loads(text)) == one


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("certificates", "Dist-RDP-SE", "claim"), "proved"),
        (("certificates", "Dist-RDP-SE", "epsilon"), "1"),
        (("certificates", "Dist-RDP-SE", "epsilon"), -1.0),
        (("certificates", "Dist-RDP-SE", "epsilon_exact"), "-Infinity"),
        (("certificates", "Dist-RDP-SE", "delta"), 1.5),
        (("certificates", "Dist-RDP-SE", "releases"), -1),
        (("certificates", "Dist-RDP-SE", "zcdp"), [1.0]),
        (("certificates", "Dist-RDP-SE", "renyi"), [[2.0, 1.0, 3.0]]),
        (("certificates", "Dist-RDP-SE", "not_covered"), "nothing"),
        (("config", "horizon"), 0),
        (("config", "seeds"), [[0]]),
        (("config", "environments", "Dist-RDP-SE", "spec"), 3),
        (("format",), 1),
        (("provenance", "jax"), 3),
        (("provenance", "git_commit"), 3),
        (("provenance", "seconds"), -1.0),
    ],
)
def test_what_is_wrong_is_refused(text, path, value):
    wrong = copy.deepcopy(text("arms"))
    *way, last = path
    place = wrong
    for name in way:
        place = place[name]
    assert last in place
    place[last] = value
    assert list(checker().iter_errors(wrong))
    del place[last]
    assert list(checker().iter_errors(wrong))


def test_what_no_version_writes_is_refused(text):
    """A field that a certificate does not have, maybe a misspelt one, and a file that does not say who wrote it."""
    unknown, nowhere = copy.deepcopy(text("arms")), copy.deepcopy(text("arms"))
    unknown["certificates"]["Dist-RDP-SE"]["epsilon_exakt"] = 1.0
    (error,) = checker().iter_errors(unknown)
    assert "epsilon_exakt" in error.message
    nowhere["provenance"] = {}
    missing = [error.message for error in checker().iter_errors(nowhere)]
    assert all(any(name in one for one in missing) for name in ("fedbandit_jax", "device", "date", "git_commit"))
    also = copy.deepcopy(text("arms"))
    also["provenance"]["configuration"] = "some runs say more"
    assert not list(checker().iter_errors(also))


def test_every_field_has_words():
    for name, field in fb.schema()["$defs"]["certificate"]["properties"].items():
        assert len(field["description"]) > 10, name
