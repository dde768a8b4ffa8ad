"""Every flag changes the run."""

import functools
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from command_line import commands

import fedbandit_jax as fb
from fedbandit_jax import audits, privacy
from fedbandit_jax.certificate import no_privacy
from fedbandit_jax.cli import main, parse, plan
from fedbandit_jax.engine import simulation
from fedbandit_jax.engine.identity import describe
from fedbandit_jax.planning.candidate import Candidate
from fedbandit_jax.planning.recommendation import Recommendation


@functools.cache
def asked(family, *words):
    return parse(["simulate", family, *words]).asked().arguments


def told(request):
    """All that is run: the environment with its numbers, the algorithms, and the options."""
    env = {
        name: value if name == "spec" else np.asarray(value).tolist() for name, value in vars(request["env"]).items()
    }
    rest = {name: value for name, value in request.items() if name not in ("env", "algos", "key")}
    return repr((type(request["env"]), env, describe(request["algos"]), rest, jax.random.key_data(request["key"])))


FLAGS = {
    "linear": "--env digits | --algorithms FedLinUCB | --epsilon 3 4 | --delta 0.05 | --horizon 77 | --seeds 3 | "
    "--set stride=5 | --agents 7 | --arms 9 | --dim 4 | --random-seed 3 | --set exploration_scale=0.3",
    "arms": "--set means=[0.1,0.2]",
    "schedules": "--set threshold=M^1.5 | --set environment.gap=0.2",
    "clusters": "--set trigger=count | --set algorithms.LinUCB.policy.failure=0.1",
}


@pytest.mark.parametrize("words", commands(FLAGS))
def test_no_flag_of_simulate_is_ignored(words):
    family, *flags = words.split()
    assert told(asked(family, *flags)) != told(asked(family))


PRESETS = {  # family -> environment, horizon, seeds, and claim of every algorithm
    "linear": (
        fb.envs.sphere(100, 100, 10, rewards="bernoulli"), 4000, 4, "none none certified as_printed" + 4 * " certified",
    ),
    "arms": (fb.envs.arms(), 1_000_000, 20, "none" + 7 * " certified" + " none"),
    "schedules": (fb.envs.gap(20, 20, 5), 5000, 8, "none none certified certified certified"),
    "clusters": (
        fb.envs.clustered(40, 5, 2, n_arms=10, dim=10, gap=0.5), 100_000, 10, "none none none certified" + 4 * " none",
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", PRESETS)
def test_what_a_family_compares(family):
    """Without privacy; as printed, which leaks or is proved for less; and certified, for the same budget."""
    request, (env, *sizes, claims) = asked(family), PRESETS[family]
    assert describe(request["env"]) == describe(env)
    assert [request["horizon"], request["seeds"]] == sizes
    proofs = [algo.certificate(env.spec, request["horizon"]) for algo in request["algos"].values()]
    assert [proof.claim for proof in proofs] == claims.split()
    assert not any(proof.warning for proof in proofs)
    assert len({(proof.epsilon, proof.delta) for proof in proofs if proof.epsilon and proof.delta}) <= 1


@pytest.mark.parametrize("command", ["plan", "calibrate"])
def test_delta_is_below_one_over_the_users(command):
    asked = parse([command])
    assert (asked.delta or plan.DELTA) < 1 / (asked.agents * (asked.horizon or plan.HORIZON))


CALIBRATE = {
    "": "--epsilon 2 | --delta 0.05 | --adjacency zero_out | --horizon 5000 | --batch 50 | --release blt | "
    "--trust central | --visits 3 | --agents 7",
    "--sigma 3": "--delta 0.05 | --adjacency zero_out | --release blt | --batch 50 | --visits 3",
    "--trust secagg": "--dim 3 | --batch 50 | --visits 2",
}


@pytest.mark.parametrize("words", ["--sigma 3", *commands(CALIBRATE)])
def test_no_flag_of_calibrate_is_ignored(capsys, words):
    """The numbers change when the last flag does."""
    *base, flag, value = words.split()

    def numbers(*flags):
        assert main(["calibrate", *flags]) == 0
        return re.findall(r"epsilon = [^ ]*|[\d.]*\d", capsys.readouterr().out.partition("\n")[2])

    assert numbers(*base, flag, value) != numbers(*base)


def test_flags_of_plan_are_used(monkeypatch, capsys):
    """And the code below the plan runs the recommended algorithm. A plan that finds none says so."""
    seen = []
    best = Candidate(label="x", group="x", algo=fb.algos.Federated(schedule=3), certificate=no_privacy("nothing"))

    def planned(env, budget, **options):
        seen.append((env, budget, options))
        return Recommendation(
            candidates=(), best=best, choices=(), reference=(), spec=env.spec, horizon=40, liars=0.0, seconds=1.0
        )

    monkeypatch.setattr(fb.planning.recommend, "plan", planned)
    words = "--epsilon 2 3 --at-most 1.2 --delta 0.01 --adjacency zero_out --agents 3 --arms 4 --dim 5 --horizon 40"
    more = "--users 7 --trusted secagg server --max-syncs 9 --rounds 20 --random-seed 5"
    assert main(["plan", *f"{words} {more} --dropouts 0.1 --delay 7 --liars 0.25".split()]) == 0
    ((env, budget, options),) = seen
    assert (env.spec.n_agents, env.spec.n_arms, env.spec.dim, env.spec.n_users) == (3, 4, 5, 7)
    assert budget == [privacy.Budget(epsilon, 0.01, "zero_out") for epsilon in (2.0, 3.0)]
    assert (jax.random.key_data(options.pop("key")) == jax.random.key_data(jax.random.key(5))).all()
    sizes = dict(horizon=40, at_most=1.2, max_syncs=9, rounds=20, liars=0.25)
    assert options == sizes | dict(trusted=("secagg", "server"), unit="user", progress=True)
    simulated, nothing = [], SimpleNamespace(summary=str)
    monkeypatch.setattr(simulation, "simulate", lambda *given, **how: simulated.append((given, how)) or nothing)
    exec(capsys.readouterr().out.partition("import jax\n")[2], {"jax": jax})
    ((world, algo), how) = simulated[0]
    assert (env.spec.drops, env.spec.late) == (True, 7)
    assert (world.spec, algo, how["horizon"]) == (env.spec, best.algo, 40)
    assert (world.env.rate == np.float32(0.1)).all()
    assert (jax.random.key_data(how["key"]) == jax.random.key_data(jax.random.key(6))).all()
    assert main(["plan", "--users", "7", "--visits", "4", "--agents", "2", "--dim", "3"]) == 0
    assert seen[-1][2]["unit"] == privacy.Users(4, per_batch=1)
    best = None
    assert main(["plan"]) == 1
    assert "Nothing meets" in capsys.readouterr().out


def test_flags_of_audit_are_used(monkeypatch):
    seen = []
    monkeypatch.setattr(audits, "run", lambda cases, **options: seen.append((cases, options)) or [])
    for more in ("", " --only mixture"):
        assert main(f"audit --family clusters --runs 2000 --random-seed 3{more}".split()) == 0
    ((cases, options), (fewer, _)) = seen
    names = [case.name for case in audits.shipped("clusters")]
    assert [case.name for case in cases] == names
    assert [case.name for case in fewer] == [name for name in names if "mixture" in name] != []
    assert options["n_runs"] == 2000
    assert int(jax.random.key_data(options["key"])[-1]) == 3
