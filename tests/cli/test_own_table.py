"""A user's table on the command line: flags, a sweep's file, `fedbandit data`, and refusals."""

import csv
import re
import shlex

import numpy as np
import pytest
from command_line import commands, refuses
from handmade import visits

import fedbandit_jax as fb
from fedbandit_jax.cli import _configuration, main, parse
from fedbandit_jax.planning import evaluation, recommend

WORDS = "--data log.csv --silo hospital --arm drug --reward cured"
ARGUMENTS = dict(silo="hospital", arm="drug", reward="cured")
MORE = {
    "--user patient": dict(user="patient"),
    "--features 'age, \"pressure, systolic\"'": dict(features=["age", "pressure, systolic"]),
    "--arm-features dose --propensity p": dict(arm_features=["dose"], propensity="p"),
    "--model logistic": dict(model="logistic"),
}


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    """A folder with a log of 400 visits in it, and nothing else."""
    monkeypatch.chdir(tmp_path)
    log, rng = visits(), np.random.default_rng(0)
    log |= {"pressure, systolic": rng.normal(size=400).round(2), "after": log["cured"]}
    log |= {"noise": rng.permutation(log["cured"])}
    with open("log.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(log)
        rows.writerows(zip(*(column.tolist() for column in log.values())))


def same(one, other):
    """Whether two environments are of the same table and have the same numbers."""
    arrays = ("rows", "arms", "theta", "counts")
    return one.fit == other.fit and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


@pytest.mark.parametrize(("flags", "arguments"), [("", {}), *MORE.items()])
def test_simulate_and_sweep_take_a_table(tmp_path, flags, arguments):
    """Flags are arguments of `fb.data.table`; and so they are in the file of a sweep."""
    wanted = fb.data.table("log.csv", **ARGUMENTS, **arguments)
    family = "linear" if arguments else "schedules"
    words = shlex.split(f"simulate {family} {WORDS} {flags} --horizon 40 --seeds 2")
    asked = parse(words).asked().arguments
    assert same(asked["env"], wanted)
    assert list(asked["algos"])[-1] == "uniform play"  # random arms, beside which little learning is seen
    words += ["--algorithms", first := next(iter(asked["algos"]))]
    assert list(parse(words).asked().arguments["algos"]) == [first]
    lines = (f"{name} = {value!r}\n" for name, value in (ARGUMENTS | arguments).items())
    assert same(swept(tmp_path, f'type = "table"\nsource = "log.csv"\n{"".join(lines)}'), wanted)


def plain(algo):
    """The same recipe without privacy; where there is no noise, optimism that knows its law is optimism."""
    algo = algo.replace(privacy=None, name="any") if hasattr(algo, "privacy") else algo
    return algo.replace(policy=fb.algos.UCB()) if isinstance(getattr(algo, "policy", None), fb.algos.UCB) else algo


@pytest.mark.parametrize(("family", "n"), [("linear", 4), ("schedules", 1)])
def test_private_recipes_of_a_table_have_themselves_without_privacy_beside_them(family, n):
    """Where they are certified, and times are fixed: lest another recipe makes privacy seem to help."""
    asked = parse(shlex.split(f"simulate {family} {WORDS} --horizon 200")).asked().arguments
    algos, spec = asked["algos"].values(), asked["env"].spec
    private = [
        one for one in algos if getattr(one, "privacy", None) and one.certificate(spec, 200).claim == "certified"
    ]
    fixed = [one for one in private if not isinstance(one.schedule, fb.schedules.PrivateLogDet)]
    there = [plain(one) for one in algos if not getattr(one, "privacy", None)]
    assert len(fixed) == n
    assert [one for one in fixed if plain(one) not in there] == []


def swept(folder, environment):
    """The environment of a file of a sweep."""
    text = f'horizon = 5\nseeds = 2\n[environment]\n{environment}[algorithms.plain]\ntype = "fed_lin_ucb"\n'
    (folder / "sweep.toml").write_text(text)
    return _configuration.read(folder / "sweep.toml").arguments["env"]


def test_a_sweep_takes_real_logs_and_their_own_rewards(tmp_path):
    found = swept(tmp_path, 'type = "star"\nfit_share = 0.1\n[environment.rejection]\n')
    wanted = fb.envs.rejection(fb.data.star(fit_share=0.1))
    assert same(found.env, wanted.env)
    assert found.spec == wanted.spec


@pytest.mark.parametrize(("flags", "unit"), [("", None), ("--user patient", "user"), ("--user patient --visits 2", 2)])
def test_plan_takes_a_table(monkeypatch, flags, unit):
    """Where users return, one of them is protected in all her visits to all silos."""
    seen = []

    def plan(env, budget, **options):
        seen.append((env, budget[0].delta, options["horizon"], options["unit"]))
        raise ValueError("horizon must be something else, got this")

    monkeypatch.setattr(recommend, "plan", plan)
    for more in ("", "--horizon 40 --delta 0.01"):
        assert main(shlex.split(f"plan {WORDS} {flags} {more}")) == 2
    (env, *sized, found), (_, *given, _) = seen
    assert sized == [pytest.approx(1 / (10 * env.fit.replayed_rows)), env.fit.replayed_rows // 3]
    assert given == [0.01, 40]
    assert same(env, fb.data.table("log.csv", **ARGUMENTS, **({"user": "patient"} if flags else {})))
    assert found == (fb.privacy.Users(2, per_batch=1, silos=3) if unit == 2 else unit)


def test_data_lists_columns(capsys):
    assert main(["data", "log.csv"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert {"400", "13"} <= set(rows["log.csv:"])
    assert rows["drug"][:4] == ["drug", "3", "0", "placebo"]  # distinct, missing, and the most frequent
    assert rows["cured"][1:] == ["2", "0", "-", "0", f"{visits()['cured'].mean():.4g}", "1"]


@pytest.mark.parametrize(
    ("words", "told"), [("noise --features age", "no better than the mean"), ("cured --features after", "only after")]
)
def test_data_doubts_a_model_that_knows_nothing_or_everything(capsys, words, told):
    """Of pure noise the best arms seem to gain, too; an outcome among the features explains the reward."""
    assert main(f"data log.csv --silo hospital --arm drug --reward {words}".split()) == 0
    assert told in " ".join(capsys.readouterr().out.split())


def test_data_says_whose_word_propensities_are_and_which_silos_are_small(capsys):
    log = visits(60)
    drug = np.unique(log["drug"], return_inverse=True)[1]
    log["share"] = (np.bincount(drug) / 60)[drug]
    with open("small.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([log, *zip(*(column.tolist() for column in log.values()))])
    said = {}
    for p in ("p", "share"):
        assert main(shlex.split(f"data small.csv {WORDS.removeprefix('--data log.csv')} --propensity {p}")) == 0
        said[p] = " ".join(capsys.readouterr().out.split())
    counts = fb.data.table("small.csv", **ARGUMENTS).counts
    assert f"{(counts < 10).sum()} of 3 silos with fewer than 10 replayed rows" in said["p"]
    assert evaluation.STATED in said["p"]
    assert evaluation.OF_SHARES in said["share"]


def test_data_says_what_it_costs_to_protect_users(capsys):
    """By hand: noise of one visit to each of three silos, on the mean of an arm over first visits alone."""
    assert main(shlex.split(f"data {WORDS.removeprefix('--data ')} --features age --user patient --details")) == 0
    said = capsys.readouterr().out
    env = fb.data.table("log.csv", **ARGUMENTS, features=["age"], user="patient")
    assert said.endswith(f"\n{env.fit}\n\n{env.encoding}\n")
    assert "M = 3 silos, K = 3 arms" in said
    silo = np.repeat(np.arange(3), env.counts)
    pairs = {(who, where) for who, where in zip(env.users.tolist(), silo.tolist())}
    silos = [len({where for one, where in pairs if one == who}) for who in {who for who, _ in pairs}]
    assert ", ".join(f"{silos.count(n)} come to {n}" for n in sorted(set(silos))) in " ".join(said.split())
    assert max(silos) == 3
    budget = fb.privacy.Budget(1.0, 1 / (10 * env.fit.replayed_rows))
    whole = dict(n_syncs=1, release="blt", n_agents=3, batch=env.fit.replayed_rows // 3, dim=env.fit.dim)
    for users, rows in ((fb.privacy.Users(1), env.fit.replayed_rows), (fb.privacy.Users(1, silos=3), len(pairs))):
        noise = [fb.privacy.calibrate(budget, trust=trust, users=users, **whole).model.sum_std()
                 for trust in ("silo_local", "secagg")]  # fmt: skip
        scale = float(env.rows[0, 0] * env.arms[0, 0]) * rows / 3
        shown = r" +".join(rf"{std / scale:.4f}(?: \(!\))?" for std in noise)
        assert re.search(rf"^1 +{shown}$", said, re.M)


REFUSED = {  # command -> flags, the last of which is refused
    "simulate linear": "--silo hospital | --silo a --arm b --reward c --data none.csv | "
    "--data log.csv --silo hospital --reward cured --arm drag",
    f"simulate linear {WORDS}": "--env digits | --features age,height | --agents 5",
    f"simulate arms {WORDS.removeprefix('--data log.csv')}": "--data log.csv",
    f"plan {WORDS}": "--agents 5 | --users 5",
    "plan": "--silo hospital",
    "data": "none.csv | log.xlsx",
}


@pytest.mark.parametrize("command", commands(REFUSED))
def test_errors_are_one_sentence_and_name_the_flag(command, capsys, tmp_path):
    assert refuses(command, capsys, tmp_path)


def test_flags_that_are_missing_are_named(capsys):
    for command, flag in (("simulate linear --data log.csv", "--silo"), ("data log.csv --silo hospital", "--arm")):
        assert main(command.split()) == 2
        assert capsys.readouterr().err.startswith(f"fedbandit: {flag} must")
