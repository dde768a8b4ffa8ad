"""A user's table on the command line: flags, a sweep's file, `fedbandit data`, and refusals."""

import shlex

import numpy as np
import pandas
import pytest
from command_line import COLUMNS, write_log
from handmade import visits

import fedbandit_jax as fb
from fedbandit_jax.cli import _configuration, main, parse
from fedbandit_jax.planning import recommend
from fedbandit_jax.planning.price import price

WORDS = f"--data log.csv {COLUMNS}"
ARGUMENTS = dict(silo="hospital", arm="drug", reward="cured")
MORE = {
    "": {},
    "--user patient": dict(user="patient"),
    "--features age 'pressure, systolic'": dict(features=["age", "pressure, systolic"]),
    "--missing": dict(missing=[]),
    "--arm-features dose --propensity p": dict(arm_features=["dose"], propensity="p"),
    "--model logistic": dict(model="logistic"),
}


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    """A folder with a log in it, and nothing else."""
    monkeypatch.chdir(tmp_path)
    write_log()


def same(one, other):
    """Whether two environments are of the same table and have the same numbers."""
    arrays = ("rows", "arms", "theta", "counts")
    return one.fit == other.fit and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


def swept(folder, environment):
    """The environment of a file of a sweep."""
    text = f'horizon = 5\nseeds = 2\n[environment]\n{environment}[algorithms.plain]\ntype = "fed_lin_ucb"\n'
    (folder / "sweep.toml").write_text(text)
    return _configuration.read(folder / "sweep.toml").arguments["env"]


@pytest.mark.parametrize(("flags", "arguments"), MORE.items())
def test_simulate_and_sweep_take_a_table(tmp_path, flags, arguments):
    """Flags are arguments of `fb.data.table`; and so they are in the file of a sweep."""
    wanted = fb.data.table("log.csv", **ARGUMENTS, **arguments)
    words = shlex.split(f"simulate {'linear' if arguments else 'schedules'} {WORDS} {flags} --horizon 40 --seeds 2")
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
    there = [plain(one) for one in algos if not getattr(one, "privacy", None)]
    private = [one for one in algos if getattr(one, "privacy", None)]
    fixed = [one for one in private if one.certificate(spec, 200).claim == "certified"
             and not isinstance(one.schedule, fb.schedules.PrivateLogDet)]  # fmt: skip
    assert len(fixed) == n
    assert [one for one in fixed if plain(one) not in there] == []


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
        raise fb.BadValue("horizon", "must be something else", 3)

    monkeypatch.setattr(recommend, "plan", plan)
    for more in ("", "--horizon 40 --delta 0.01"):
        assert main(shlex.split(f"plan {WORDS} {flags} {more}")) == 2
    (env, *sized, found), (_, *given, _) = seen
    assert sized == [pytest.approx(1 / (10 * env.fit.replayed_rows)), env.fit.replayed_rows // 3]
    assert given == [0.01, 40]
    assert same(env, fb.data.table("log.csv", **ARGUMENTS, **({"user": "patient"} if flags else {})))
    assert found == (fb.privacy.Users(2, per_batch=1, silos=3) if unit == 2 else unit)


def test_data_lists_columns_and_then_prints_the_price_and_the_fit(capsys):
    assert main(["data", "log.csv"]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert {"400", "11"} <= set(rows["log.csv:"])
    assert rows["drug"][:4] == ["drug", "3", "0", "placebo"]  # distinct, missing, and the most frequent
    assert rows["cured"][1:] == ["2", "0", "-", "0", f"{visits()['cured'].mean():.4g}", "1"]
    assert main(f"data log.csv {COLUMNS} --features age --details".split()) == 0
    env, said = fb.data.table("log.csv", **ARGUMENTS, features=["age"]), capsys.readouterr().out
    assert said.endswith(f"\n{env.fit}\n\n{env.encoding}\n")
    assert " ".join("\n".join(price(env)).split()) in " ".join(said.split())


@pytest.mark.filterwarnings("error")
def test_data_describes_what_it_could_not_use(capsys):
    """Lists, and numbers whose squares are too large, in columns that may have no role."""
    pandas.DataFrame({"tags": [["a"], ["a"], ["b"]], "large": [1e200, 1.0, np.inf]}).to_parquet("log.parquet")
    assert main(["data", "log.parquet"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["tags", "2", "0", "['a']", "-", "-", "-"] in rows
    assert ["large", "3", "0", "-", "1", "inf", "inf"] in rows
