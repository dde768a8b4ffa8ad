"""Every flag changes what is run."""

import dataclasses
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax import audits, privacy
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.cli import main, parse
from fedbandit_jax.engine import simulation
from fedbandit_jax.engine.grid import expand
from fedbandit_jax.engine.identity import describe


def asked(family, *words):
    return parse(["simulate", family, *words]).asked().arguments


def told(request):
    """All that is run: the environment with its numbers, the algorithms, and the options."""
    env = {
        name: value if name == "spec" else np.asarray(value).tolist() for name, value in vars(request["env"]).items()
    }
    rest = {name: value for name, value in request.items() if name not in ("env", "algos", "key")}
    return repr((type(request["env"]), env, describe(request["algos"]), rest, jax.random.key_data(request["key"])))


@pytest.mark.parametrize(
    "words",
    [
        *("linear --env digits", "linear --algorithms FedLinUCB", "linear --epsilon 3 4", "linear --delta 0.05"),
        *("linear --horizon 77", "linear --seeds 3", "linear --stride log", "linear --agents 7", "linear --arms 9"),
        *(
            "linear --dim 4",
            "linear --random-seed 3",
            "linear --set exploration_scale=0.3",
            "arms --set means=[0.1,0.2]",
        ),
        *("schedules --set threshold=M^1.5", "schedules --set environment.gap=0.2", "clusters --set trigger=count"),
        "clusters --set algorithms.LinUCB.policy.failure=0.1",
    ],
)
def test_no_flag_of_simulate_is_ignored(words):
    family, *flags = words.split()
    assert told(asked(family, *flags)) != told(asked(family))


@pytest.mark.parametrize(
    ("family", "path", "value", "others"),
    [
        ("linear", "exploration_scale", 0.3, {"Private greedy, growing batches"}),
        ("linear", "schedule.batch", 26, {"Private greedy, growing batches"}),
        ("linear", "policy.shrinkage", 3.0, None),
        ("arms", "failure", 0.15, set()),
        ("arms", "delta", 0.05, {"SE"}),
        ("schedules", "algorithms.FedUCB.schedule.trigger", "dp20", None),
        ("schedules", "growth", 1.3, None),
        ("clusters", "upload", 1.1, {"CLUB", "SCLUB", "LinUCB", "CDP-Mixture"}),
    ],
)
def test_a_parameter_reaches_all_algorithms_but(family, path, value, others):
    """These, which do not have it; None: all but one."""
    before, after = (
        {
            one.coordinates["algorithm"]: describe(one.algo)
            for one in expand(request["env"], request["algos"], request["grid"]).values()
        }
        for request in (asked(family), asked(family, "--set", f"{path}={value}"))
    )
    same = {name for name, account in before.items() if account == after[name]}
    assert len(same) == len(before) - 1 if others is None else same == others


SHARP = fb.algos.UCB(regularizer="project", confidence="known_noise")


def test_what_the_linear_family_compares():
    """Without privacy; as printed, certified, with less noise, greedy, and with a server that adds up."""
    request, budget = asked("linear"), fb.privacy.Budget(1.0, 0.1)
    make, mechanism = fb.algos.private_fed_lin_ucb, fb.privacy.Mechanism
    decaying = mechanism(budget, fb.privacy.Decaying(1.5), statistic=fb.privacy.Linear(centred=True, gram_scale=0.5))
    growing = fb.schedules.Geometric(1.5, first=12)
    assert list(request["algos"].values()) == [
        fb.algos.fed_lin_ucb(schedule=25),
        make(mechanism(budget, calibration="theorem"), schedule=25, learns_in_batch=True),
        make(budget, schedule=25),
        make(mechanism(budget, release="blt"), schedule=25, policy=SHARP),
        fb.algos.Federated(policy=fb.algos.Greedy(), schedule=growing, privacy=decaying),
        make(mechanism(budget, release="blt", trust="secagg"), schedule=25, policy=SHARP),
    ]
    assert describe(request["env"]) == describe(fb.envs.sphere(100, 100, 10, rewards="bernoulli"))
    assert (request["horizon"], request["seeds"], request["grid"]) == (4000, 8, {"epsilon": [1.0]})


def test_what_the_family_of_arms_compares():
    request = asked("arms", "--algorithms", *fb.algos.ELIMINATION, "AdaC-UCB")
    *rows, last = request["algos"].items()
    for label, algo in rows:
        mechanism, trust = fb.algos.ELIMINATION[label]
        epsilon = None if mechanism == "none" else 0.5
        assert algo == fb.algos.SuccessiveElimination(epsilon=epsilon, mechanism=mechanism, trust=trust)
        assert algo.name == label
    assert last == ("AdaC-UCB", fb.algos.AdaCUCB(epsilon=0.5, mechanism="discrete_laplace", trust="secagg"))
    assert describe(request["env"]) == describe(fb.envs.arms())
    assert (request["horizon"], request["seeds"], request["stride"]) == (1_000_000, 20, "log")


def test_what_the_family_of_schedules_compares():
    request, budget = asked("schedules"), fb.privacy.Budget(1.0, 0.1)
    adaptive, make = fb.schedules.LogDet(20.0), fb.algos.private_fed_lin_ucb
    blt = fb.privacy.Mechanism(budget, release="blt")
    assert list(request["algos"].values()) == [
        fb.algos.fed_ucb(schedule=adaptive, policy=fb.algos.LogDetUCB(regularization=1 / 20)),
        fb.algos.fed_ucb(budget, schedule=adaptive, policy=fb.algos.LogDetUCB()),
        make(blt, schedule=fb.schedules.PrivateLogDet(20.0, 0.1, 100), policy=SHARP),
        make(blt, schedule=fb.schedules.Geometric(1.2, first=1), policy=SHARP),
        fb.algos.Uniform(),
    ]
    assert describe(request["env"]) == describe(fb.envs.gap(20, 20, 5))


def test_what_the_family_of_clusters_compares():
    request, budget = asked("clusters"), fb.privacy.Budget(1.0, 0.1)
    stream = fb.privacy.Mechanism(
        budget, "blt", unit="visit", statistic=fb.privacy.Linear(centred=True, gram_scale=0.5)
    )
    assert [describe(algo) for algo in request["algos"].values()] == [
        describe(algo)
        for algo in (
            fb.algos.FCLUB(upload=1, download=1),
            fb.algos.FCLUB(),
            fb.algos.FCLUB(budget=budget),
            fb.algos.Grouped(grouping=fb.algos.Mixture(theta_norm=0.5**0.5), privacy=stream),
            *(fb.algos.CLUB(), fb.algos.SCLUB(), fb.algos.LinUCB(), fb.algos.homo()),
        )
    ]
    assert describe(request["env"]) == describe(fb.envs.clustered(40, 5, 2, n_arms=10, dim=10, gap=0.5))


@pytest.mark.parametrize(
    "words",
    [
        *("--epsilon 2", "--delta 0.05", "--adjacency zero_out", "--horizon 5000", "--batch 50", "--release honaker"),
        *("--trust central", "--visits 3", "--sigma 3", "--sigma 3 --delta 0.05", "--sigma 3 --adjacency zero_out"),
        *(
            "--sigma 3 --release blt",
            "--sigma 3 --batch 50",
            "--sigma 3 --visits 3",
            "--agents 7",
            "--visits 3 --per-batch 1",
            "--visits 3 --per-batch 1 --apart 5",
        ),
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
    from fedbandit_jax.planning.candidate import Candidate
    from fedbandit_jax.planning.recommendation import Recommendation

    seen = []
    best = Candidate(label="x", group="x", algo=fb.algos.Federated(schedule=3), certificate=no_privacy("nothing"))

    def plan(env, budget, **options):
        seen.append((env, budget, options))
        return Recommendation(candidates=(), best=best, reference=(), spec=env.spec, horizon=40, liars=0.0, seconds=1.0)

    monkeypatch.setattr(fb.planning.recommend, "plan", plan)
    words = "--epsilon 2 --delta 0.01 --adjacency zero_out --agents 3 --arms 4 --dim 5 --horizon 40 --users 7"
    more = "--trusted secagg server --max-syncs 9 --max-bits 99 --seeds 2 --rounds 20 --random-seed 5"
    more += " --dropouts 0.1 --delay 7 --liars 0.25"
    assert main(["plan", *words.split(), *more.split()]) == 0
    ((env, budget, options),) = seen
    assert (env.spec.n_agents, env.spec.n_arms, env.spec.dim, env.spec.n_users) == (3, 4, 5, 7)
    assert budget == privacy.Budget(2.0, 0.01, "zero_out")
    assert (jax.random.key_data(options.pop("key")) == jax.random.key_data(jax.random.key(5))).all()
    assert options == dict(
        **dict(
            horizon=40,
            trusted=("secagg", "server"),
            unit="user",
            progress=True,
            **dict(dropouts=0.1, liars=0.25, delay=7),
            max_syncs=9,
            max_bits=99.0,
            seeds=2,
            rounds=20,
        )
    )
    code = capsys.readouterr().out.partition("import jax\n")[2]
    simulated, nothing = [], SimpleNamespace(summary=str)
    monkeypatch.setattr(simulation, "simulate", lambda *given, **how: simulated.append((given, how)) or nothing)
    exec(code, {"jax": jax})
    ((world, algo), how) = simulated[0]
    under = dataclasses.replace(env.spec, drops=True, late=7)  # the plan puts itself under these conditions
    assert (world.spec, algo, how["horizon"]) == (under, best.algo, 40)
    assert (world.env.rate == np.float32(0.1)).all()
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
    assert main(["audit", *words, "--part", "1/3"]) == 0
    (cases, options), (fewer, _), (third, _) = seen
    assert [case.name for case in third] == [case.name for case in cases[1::3]]
    assert [case.name for case in cases] == [case.name for case in audits.shipped("clusters")]
    assert {case.name for case in fewer} == {case.name for case in cases if "mixture" in case.name} != set()
    assert (options["n_runs"], options["confidence"]) == (2000, 0.9)
    assert int(jax.random.key_data(options["key"])[-1]) == 3
