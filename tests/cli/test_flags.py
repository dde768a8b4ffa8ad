"""Every flag changes what is run."""

import dataclasses
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from command_line import choices

import fedbandit_jax as fb
from fedbandit_jax import audits, cli, privacy
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.cli import FAMILIES, main
from fedbandit_jax.engine import simulation
from fedbandit_jax.engine.provenance import describe

OTHER = {float: lambda value: value * 1.5 + 0.001, int: lambda value: value + 1}
GIVEN = {  # where one and a half times the default will not do
    "epsilon": (3.0, 4.0),
    "share": 0.3,
    "growth": 3,
    "means": (0.1, 0.2),
    "threshold": "M log T",
    "graph": "ring",
    "gap": 0.2,
    "agents": 7,
    "arms": 9,
    "delta": 0.05,
}
NEEDS = {"gamma": {"graph": "ring"}}
APART = {"output", "given", "movielens", "mslr", "seeds", "random_seed", "horizon"}  # have tests of their own
FLAGS = [
    (family, field.name)
    for family, command in FAMILIES.items()
    for field in dataclasses.fields(command)
    if field.name not in APART
]


def shown(plan):
    """All that is run."""
    world = {name: value if name == "spec" else np.asarray(value).tolist() for name, value in vars(plan.world).items()}
    return repr((type(plan.world), world, describe(plan.algos), plan.epsilon))


@pytest.mark.parametrize(("family", "flag"), FLAGS)
def test_no_flag_is_ignored(family, flag):
    base = dataclasses.replace(FAMILIES[family](), **NEEDS.get(flag, {}))
    value = getattr(base, flag)
    options = sorted(choices(type(base), flag) - {value, "auto", "mslr"})
    if flag == "algorithms":
        new = value[:1]
    elif flag in GIVEN:
        new = GIVEN[flag]
    else:
        new = options[-1] if options else OTHER[type(value)](value)
    assert shown(dataclasses.replace(base, **{flag: new}).comparison()) != shown(base.comparison())


@pytest.mark.parametrize(
    ("family", "flag", "new", "others"),
    [
        ("linear", "batch", 26, set()),
        ("arms", "failure", 0.15, set()),
        ("arms", "delta", 0.05, {"SE"}),
        ("schedules", "trigger", "dp20", {"Private-FedLinUCB, sparse vector", "Private-FedLinUCB, 1.2-fold rounds"}),
    ],
)
def test_a_flag_reaches_all_algorithms_but(family, flag, new, others):
    """These, which it is not about; it is ignored by none because another takes notice of it."""
    base = FAMILIES[family]()
    before, after = (
        {algo.name: describe(algo) for algo in named(one.comparison().algos)}
        for one in (base, dataclasses.replace(base, **{flag: new}))
    )
    assert {name for name, account in before.items() if account == after[name]} == others


def named(algos):
    """Algorithms with their labels as names."""
    return [algo.replace(name=label) for label, algo in algos.items()] if isinstance(algos, dict) else algos


def test_what_the_linear_family_compares():
    """Without privacy; as printed, certified, with less noise, greedy, and with a server that adds up."""
    algos = cli.LinearSimulation(exploration_scale=0.3).comparison().algos
    greedy = algos.pop(4)
    assert isinstance(greedy.policy, fb.algos.Greedy)
    assert (greedy.schedule.first, greedy.privacy.centred, greedy.privacy.gram_scale) == (12, True, 0.5)
    assert [(algo.learns_in_batch, algo.policy.confidence, algo.policy.exploration_scale) for algo in algos] == [
        (True, "theory", 0.3),
        (True, "theory", 0.3),
        (False, "theory", 0.3),
        (False, "known_noise", 0.3),
        (False, "known_noise", 0.3),
    ]
    assert algos[0].privacy is None
    assert [(algo.privacy.calibration, algo.privacy.release, algo.privacy.trust) for algo in algos[1:]] == [
        ("theorem", "tree", "silo_local"),
        ("tight", "tree", "silo_local"),
        ("tight", "blt", "silo_local"),
        ("tight", "blt", "secagg"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        *("--epsilon 2", "--delta 0.05", "--adjacency add_remove", "--horizon 5000", "--batch 50", "--release honaker"),
        *("--trust central", "--visits 3", "--sigma 3", "--sigma 3 --delta 0.05", "--sigma 3 --adjacency add_remove"),
        *("--sigma 3 --release blt", "--sigma 3 --batch 50", "--sigma 3 --visits 3", "--agents 7"),
        *("--trust secagg --dim 3", "--trust secagg --batch 50", "--trust secagg --visits 2"),
    ],
)
def test_no_flag_of_calibrate_is_ignored(capsys, words):
    """The numbers change when the last flag does."""
    *base, flag, value = words.split()

    def numbers(*more):
        assert main(["calibrate", *base, *more]) == 0
        return re.findall(r"epsilon = [^ ]*|[\d.]*\d", capsys.readouterr().out.partition("\n")[2])

    assert numbers() != numbers(flag, value)


def test_flags_of_plan_are_used(monkeypatch, capsys):
    """And what is printed below the plan is code that runs what it recommends."""
    from fedbandit_jax.planning.candidates import Candidate
    from fedbandit_jax.planning.recommend import Recommendation

    seen = []
    best = Candidate(label="x", group="x", algo=fb.algos.Federated(schedule=3), certificate=no_privacy("nothing"))

    def plan(env, budget, **options):
        seen.append((env, budget, options))
        return Recommendation(candidates=(), best=best, reference=(), spec=env.spec, horizon=40, seconds=1.0)

    monkeypatch.setattr(fb.planning.recommend, "plan", plan)
    words = "--epsilon 2 --delta 0.01 --adjacency add_remove --agents 3 --arms 4 --dim 5 --horizon 40 --users 7"
    more = "--trusted secagg server --max-syncs 9 --max-bits 99 --seeds 2 --rounds 20 --random-seed 5"
    assert main(["plan", *words.split(), *more.split()]) == 0
    ((env, budget, options),) = seen
    assert (env.spec.n_agents, env.spec.n_arms, env.spec.dim) == (3, 4, 5)
    assert budget == privacy.Budget(2.0, 0.01, "add_remove")
    assert (jax.random.key_data(options.pop("key")) == jax.random.key_data(jax.random.key(5))).all()
    assert options == dict(
        **dict(horizon=40, trusted=("secagg", "server"), visits=6, max_syncs=9, max_bits=99.0, seeds=2, rounds=20)
    )
    code = capsys.readouterr().out.partition("import jax\n")[2]
    simulated, nothing = [], SimpleNamespace(summary=str)
    monkeypatch.setattr(simulation, "simulate", lambda *given, **how: simulated.append((given, how)) or nothing)
    exec(code, {"jax": jax})
    ((world, algo), how) = simulated[0]
    assert (world.spec, algo, how["horizon"]) == (env.spec, best.algo, 40)
    assert (jax.random.key_data(how["key"]) == jax.random.key_data(jax.random.key(6))).all()


@pytest.mark.slow
def test_a_plan_that_finds_nothing_says_so(monkeypatch, capsys):
    assert main(["plan", "--agents", "2", "--arms", "3", "--dim", "2", "--horizon", "50", "--max-bits", "9"]) == 1
    assert "Nothing meets these demands." in capsys.readouterr().out


def test_flags_of_audit_are_used(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(audits, "run", lambda cases, **options: seen.append((cases, options)) or [])
    monkeypatch.setattr(fb.plotting, "audits", lambda *found: None)
    monkeypatch.setattr(fb.plotting, "save", lambda figure, path: (path,))
    words = [
        "--family",
        "clusters",
        "--runs",
        "2000",
        "--confidence",
        "0.9",
        "--random-seed",
        "3",
        "--out",
        str(tmp_path),
    ]
    assert main(["audit", *words]) == 0
    assert main(["audit", *words, "--only", "mixture"]) == 0
    (cases, options), (fewer, _) = seen
    assert [case.name for case in cases] == [case.name for case in audits.shipped("clusters")]
    assert {case.name for case in fewer} == {case.name for case in cases if "mixture" in case.name} != set()
    assert (options["n_runs"], options["confidence"]) == (2000, 0.9)
    assert int(jax.random.key_data(options["key"])[-1]) == 3
