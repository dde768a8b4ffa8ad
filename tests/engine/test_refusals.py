"""What cannot be simulated or replaced is refused, before compilation, by a sentence that names the argument."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BUDGET, ENV, PRIVATE, simulate, sweep

import fedbandit_jax as fb
from fedbandit_jax.engine import driver
from fedbandit_jax.envs._wrapper import Wrapper

LONG = fb.envs.script(np.full((40, 3, 4, 5), 3.2 / np.sqrt(5)), np.zeros((40, 3, 4)))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"horizon": 0}, ValueError, "horizon must be >= 1, got 0"),
        ({"horizon": 10.0}, TypeError, "horizon must be an integer >= 1, got 10.0"),
        ({"seeds": 0}, ValueError, "seeds must be >= 1, got 0"),
        ({"stride": 3}, ValueError, "stride must divide the horizon 40, got 3"),
        ({"stride": 0}, ValueError, "stride must be >= 1, got 0"),
        ({"stride": "lin"}, TypeError, "stride must be an integer >= 1 or 'log', got 'lin'"),
        ({"key": jax.random.PRNGKey(0)}, TypeError, "key must be a typed key"),
        ({"key": 0}, TypeError, "key must be a typed key"),
        ({"sead": 1}, TypeError, "sead is no option of a run: did you mean 'seeds'?"),
        ({"epochs": 1}, TypeError, "epochs is no option of a run: there are horizon, key, seeds"),
        ({"env": "sphere"}, TypeError, "env must be an environment"),
        ({"algo": "lin_ucb"}, TypeError, "algo must be an fb.Algorithm, got 'lin_ucb'"),
        (
            {"env": LONG},
            ValueError,
            "needs feature vectors of norm <= 1, the environment's largest has norm 3.2",
        ),
        (
            {"checkpoint": "/proc/none/run"},
            ValueError,
            "checkpoint's folder must be a folder that can be written to",
        ),
    ],
)
def test_bad_input(change, error, words, monkeypatch):
    monkeypatch.setattr(driver, "run_program", lambda *a, **k: pytest.fail("compiled before checking"))
    with pytest.raises(error, match=words):
        simulate(**change)


def test_options_that_have_no_default():
    with pytest.raises(TypeError, match=r"key must be given, as in horizon=1_000, key=jax.random.key\(0\), seeds=8"):
        fb.simulate(ENV, PRIVATE, horizon=3)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("algos", "grid", "error", "words"),
    [
        ([], None, ValueError, "algos must name at least one algorithm"),
        ([PRIVATE, PRIVATE], None, ValueError, "algos must have distinct names"),
        ({"a": 1}, None, TypeError, r"algos\['a'\] must be an fb.Algorithm, got 1"),
        ([PRIVATE], {"epsilom": [1]}, ValueError, "grid must name .*, got 'epsilom': did you mean 'epsilon'?"),
        ([PRIVATE], {"xyz": [1]}, ValueError, "grid must name .*, got 'xyz'; env has some if it makes"),
        (
            [PRIVATE],
            {"epsilon": []},
            ValueError,
            r"grid\['epsilon'\] must be a sequence of at least one value",
        ),
        ([PRIVATE], {"epsilon": [1, -1]}, ValueError, "epsilon must be finite and > 0, got -1"),
        ([PRIVATE], {"epsilon": [1, 1.0]}, ValueError, r"grid\['epsilon'\] must have distinct values, got \[1, 1.0\]"),
        ([PRIVATE], {"epsilon": 1}, ValueError, r"grid\['epsilon'\] must be a sequence of at least one value, got 1"),
        ([PRIVATE], [1], TypeError, r"grid must map parameters to values, got \[1\]"),
        ({"P(epsilon=1)": fb.algos.LinUCB(), "P": PRIVATE}, {"epsilon": [1, 2]}, ValueError, "would both be labelled"),
        (PRIVATE, None, TypeError, "algos must be several algorithms, got one"),
        ({1: PRIVATE}, None, TypeError, "algos must have strings for labels, got 1"),
        (
            [fb.algos.fed_lin_ucb()],
            {"calibration": ["tight"]},
            ValueError,
            "grid must name parameters of env or of an algorithm, got 'calibration'",
        ),
    ],
)
def test_bad_sweeps(algos, grid, error, words):
    with pytest.raises(error, match=words):
        sweep(algos, grid=grid)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"schedule": 0}, ValueError, "schedule must be >= 1, got 0"),
        ({"schedule": "often"}, TypeError, "schedule must be .* got 'often'"),
        ({"schedule": 2000, "learns_in_batch": True}, ValueError, "schedule must be <= 1000 where agents learn"),
        ({"failure": 1.0}, ValueError, r"failure must be in \(0, 1\), got 1.0"),
        ({"subgaussian": -1}, ValueError, "subgaussian must be finite and >= 0, got -1"),
        ({"theta_norm": float("nan")}, ValueError, "theta_norm must be finite and >= 0, got nan"),
        ({"exploration_scale": "big"}, TypeError, "exploration_scale must be a number >= 0, got 'big'"),
        ({"confidence": "none"}, ValueError, "confidence must be one of 'theory', 'known_noise', 'authors', got"),
        ({"regularizer": "lift"}, ValueError, "regularizer must be one of 'shift', 'project', got 'lift'"),
        ({"calibration": "loose"}, ValueError, "calibration must be one of"),
        ({"release": "bush"}, ValueError, "release must be one of 'tree', .* got 'bush'"),
        ({"trust": "blind"}, ValueError, "trust must be one of 'silo_local', .* got 'blind'"),
        ({"learns_in_batch": "False"}, TypeError, "learns_in_batch must be True or False, got 'False'"),
        ({"privacy": (1, 0.1)}, TypeError, r"privacy must be an fb.privacy.Mechanism, an .* got \(1, 0.1\)"),
        ({"budget": (1, 0.1)}, TypeError, r"budget must be an fb.privacy.Budget, or one .* got \(1, 0.1\)"),
        ({"trust": "secagg", "calibration": "theorem"}, ValueError, "calibration must be 'tight' with trust='secagg'"),
        ({"trust": "shuffle_amplified", "release": "blt"}, ValueError, "release must be 'tree' .* got 'blt'"),
        ({"trust": "secagg", "release": "prefix_tree"}, ValueError, "trust must be 'silo_local'.* got 'secagg'"),
        ({"release": "blt", "calibration": "theorem"}, ValueError, "release must be 'tree' .* got 'blt'"),
        ({"trust": "local"}, ValueError, "release must be 'input_perturbation' .* got 'tree'"),
        ({"budget": [BUDGET] * 4, "trust": "central"}, ValueError, "trust must be 'silo_local' .* got 'central'"),
        ({"unit": "user"}, ValueError, "unit must be .*visit.* got 'user'"),
        ({"unit": 3}, TypeError, "unit must be 'visit', fb.privacy.Users.* got 3"),
        ({"theta_norm": 0.0, "confidence": "known_noise"}, ValueError, "theta_norm must be > 0 .* got 0"),
    ],
)
def test_bad_algorithms(options, error, words):
    with pytest.raises(error, match=words):
        PRIVATE.replace(**options)


def test_widths_must_fit_float32():
    with pytest.raises(ValueError, match="the confidence width must fit float32, got [0-9.]+e"):
        simulate(algo=PRIVATE.replace(exploration_scale=3e38))
    large, env = dict(exploration_scale=1e38, theta_norm=1e38), fb.envs.clustered(4, 2, 2, dim=3)
    policies = fb.algos.LinUCB(policy=fb.algos.UCB(**large)), fb.algos.Federated(policy=fb.algos.LogDetUCB(**large))
    for algo, spec in zip((fb.algos.CLUB(**large), *policies), (env.spec, env.spec, ENV.spec)):
        with pytest.raises(ValueError, match="the confidence width must fit float32, got [0-9.]+e.76"):
            algo.bind(spec, 64)


@pytest.mark.parametrize("make", [fb.algos.UCB, fb.algos.LogDetUCB, fb.algos.FCLUB])
def test_a_ridge_that_float32_can_follow(make):
    assert make(regularization=1e-5).regularization == 1e-5
    with pytest.raises(ValueError, match=r"regularization must be in \[1e-05, 3.40282e\+38\], got 1e-06"):
        make(regularization=1e-6)


def test_failure_is_large_enough_to_divide():
    for make in (fb.algos.UCB, fb.algos.CLUB, fb.algos.LogDetUCB, lambda **given: fb.algos.dp_dpe(np.eye(3), **given)):
        with pytest.raises(ValueError, match=r"failure must be in \[1e-30, 1\], got 5e-324"):
            make(failure=5e-324)
    policy = fb.algos.Forgetting(policy=fb.algos.UCB(failure=1e-30), memory=fb.privacy.Discounted(0.5))
    with pytest.raises(ValueError, match=r"failure / S must be in \[1e-30, 1\], got 5e-31"):
        fb.algos.Federated(policy=policy, schedule=5).bind(ENV.spec, 10)


def test_replace_refuses_what_is_not_there():
    with pytest.raises(TypeError, match="FedLinUCB has no parameter epsilon"):
        fb.algos.fed_lin_ucb().replace(epsilon=1.0)
    with pytest.raises(TypeError, match="epsilom"):
        PRIVATE.replace(epsilom=1.0)
    with pytest.raises(TypeError, match="LinUCB has no parameter epsilon"):
        fb.algos.LinUCB().replace(epsilon=1.0)
    with pytest.raises(ValueError, match=r"failure must be in \(0, 1\), got 7.0"):
        fb.algos.LinUCB().replace(failure=7.0)


def test_user_classes_must_be_pytrees():
    class Plain(fb.Algorithm):
        def init(self, key, spec):
            return jnp.zeros(())

    with pytest.raises(TypeError, match="must be a pytree of numbers: decorate its class with @fb.pytree"):
        simulate(algo=Plain())


@fb.pytree
class Worded(fb.Policy):
    mode: str = "a"


class Undecorated(fb.Policy):
    pass


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Undecorated(), "policy must be a pytree of numbers: decorate Undecorated with @fb.pytree"),
        (Worded(), r"policy must hold numbers, and anything else in fields of fb.static\(\), got 'a' in Worded"),
    ],
)
def test_policies_must_be_pytrees(policy, words):
    with pytest.raises(TypeError, match=words):
        fb.algos.Federated(policy=policy, schedule=5).bind(ENV.spec, 40)


@fb.pytree
class WithoutUpdate(fb.Policy):
    def index(self, key, t, belief, contexts):
        return contexts[:, 0]


@fb.pytree
class WithoutIndex(fb.Policy):
    def update(self, k, belief, released):
        return released.bias


@fb.pytree
class Nothing(WithoutIndex):
    def index(self, key, t, belief, contexts):
        return None


@fb.pytree
class Frozen(WithoutIndex):
    def index(self, key, t, belief, contexts):
        return contexts[:, 0] * np.random.default_rng().normal()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (WithoutUpdate(), "policy must have the method update, see fb.Policy, got WithoutUpdate without it"),
        (WithoutIndex(), "policy must have the method index, see fb.Policy, got WithoutIndex without it"),
        (Nothing(), r"Nothing.index must return the worth of every arm, \(4,\), got None"),
        (Frozen(), "'s act must be the same program whenever it is traced, .* use jax.random"),
    ],
)
def test_policies_that_are_not_finished(policy, words):
    with pytest.raises(TypeError, match=words):
        simulate(algo=fb.algos.Federated(policy=policy, schedule=5))


@fb.pytree
class FrozenNoise(Wrapper):
    """An environment that would draw its noise once, when it is compiled."""

    def pull(self, key, world, offered, arms):
        found = self.env.pull(key, world, offered, arms)
        return found._replace(reward=found.reward + np.random.normal(size=3).astype(np.float32))  # noqa: NPY002


def test_numbers_of_numpy_are_not_drawn_in_a_program():
    with pytest.raises(TypeError, match="env.pull must be the same program whenever it is traced, .* as of np.random"):
        simulate(env=FrozenNoise(env=ENV, spec=ENV.spec))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: simulate(key=jax.random.key(x)).regret,
        lambda x: sweep([PRIVATE], key=jax.random.wrap_key_data(jnp.array([0, 1], jnp.uint32) + x)).regret,
        lambda x: simulate().regret[0, 0] + x,
    ],
)
def test_a_program_cannot_run_programs(call):
    with pytest.raises(TypeError, match=r"must be numbers, got traced ones: within jax.jit, .* use fb.rollout"):
        jax.jit(call)(jnp.uint32(3))


@pytest.mark.parametrize(
    ("algo", "changes", "name"),
    [
        (PRIVATE, {"privacy": None}, "UCB"),
        (PRIVATE, {"privacy": None, "name": "mine"}, "mine"),
        (PRIVATE, {"epsilon": 2.0}, "Private-FedLinUCB"),
        (fb.algos.fed_lin_ucb(), {"privacy": BUDGET}, "UCB"),
        (fb.algos.Federated(), {"policy": fb.algos.Greedy()}, "Greedy"),
        (fb.algos.Federated(name="mine"), {"policy": fb.algos.Greedy()}, "mine"),
        (fb.algos.FCLUB(BUDGET), {"budget": None}, "FCLUB-DC"),
        (fb.algos.FCLUB(), {"upload": 1.0, "download": 1.0}, "FCLUB"),
        (fb.algos.homo(BUDGET), {"budget": None}, "Homo"),
        (fb.algos.homo(), {"budget": BUDGET}, "CDP-Homo"),
        (fb.algos.homo_dc(BUDGET), {"alpha_1": 1.0}, "CDP-FCLUB-DC"),
        (fb.algos.homo_dc(BUDGET, name="mine"), {"alpha_1": 1.0}, "mine"),
        (fb.algos.LinUCB(), {"failure": 0.2}, "LinUCB"),
    ],
)
def test_a_name_does_not_outlive_what_it_says(algo, changes, name):
    assert algo.replace(**changes).name == name


def test_spec_is_compared_by_value():
    again = fb.envs.sphere(3, 4, 5, rewards="gaussian")
    assert again.spec == ENV.spec
    assert hash(again.spec) == hash(ENV.spec)
    assert dataclasses.replace(ENV.spec, dim=6) != ENV.spec


def test_a_part_is_replaced_before_its_parameters():
    budget = fb.privacy.Budget(1.0, 1e-3)
    changed = PRIVATE.replace(epsilon=2.0, budget=budget, exploration_scale=0.3, policy=fb.algos.UCB(failure=0.2))
    assert changed.privacy.budget == fb.privacy.Budget(2.0, 1e-3)
    assert changed.policy == fb.algos.UCB(failure=0.2, exploration_scale=0.3)


def test_a_parameter_of_two_parts_is_nobody_s():
    @dataclasses.dataclass(frozen=True)
    class Sharing(fb.Policy):
        share: float = 0.5

    tested = fb.schedules.PrivateLogDet(1.0, share=0.2)
    algo = fb.algos.Federated(policy=Sharing(), schedule=tested, privacy=fb.privacy.Budget(1.0, 0.1))
    for ask in (lambda: algo.replace(share=0.3), lambda: algo.takes("share")):
        with pytest.raises(TypeError, match="share is a parameter of several parts of .*: give policy.share or sch"):
            ask()
    changed = algo.replace(**{"policy.share": 0.3, "schedule.share": 0.4})
    assert (changed.policy.share, changed.schedule.share) == (0.3, 0.4)


GROUPED = fb.algos.Grouped(grouping=fb.algos.Mixture(), policy=fb.algos.UCB(theta_norm=2.0))


def test_a_parameter_of_two_parts_has_two_paths():
    with pytest.raises(TypeError, match="several parts of Mixture: give policy.theta_norm or grouping.theta_norm"):
        GROUPED.replace(theta_norm=0.7)
    for path in ("grouping.theta_norm", "policy.theta_norm"):
        part = path.partition(".")[0]
        changed = GROUPED.replace(**{path: 0.7})
        assert getattr(changed, part).theta_norm == 0.7
        assert dataclasses.replace(changed, **{part: getattr(GROUPED, part)}) == GROUPED


@pytest.mark.parametrize("name", ["epsilon", "budget.epsilon", "privacy.budget.epsilon"])
def test_the_end_of_a_path_is_enough(name):
    assert PRIVATE.takes(name)
    assert PRIVATE.replace(**{name: 2.0}).privacy == fb.privacy.Mechanism(dataclasses.replace(BUDGET, epsilon=2.0))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (
            {"policy.epsilon": 2.0},
            TypeError,
            "Private-FedLinUCB has no parameter policy.epsilon: did you mean 'epsilon'?",
        ),
        ({"get.epsilon": 2.0}, TypeError, "no parameter get.epsilon"),
        ({"": 2.0}, TypeError, "no parameter ; it has policy, "),
        ({"policy.": 2.0}, TypeError, "no parameter policy.: did you mean 'policy'?"),
        ({"policy.exploration_scale": -1}, ValueError, "exploration_scale must be finite and >= 0, got -1"),
        ({"privacy.budget.epsilon": "much"}, TypeError, "epsilon must be a number > 0, got 'much'"),
        ({"policy": 3}, TypeError, "policy must be an fb.Policy"),
        ({"epsilon": 2.0, "budget.epsilon": 2.0}, TypeError, "epsilon and budget.epsilon are one parameter of Private"),
    ],
)
def test_paths_that_are_refused(changes, error, words):
    with pytest.raises(error, match=words):
        PRIVATE.replace(**changes)


@pytest.mark.parametrize("name", ["n_syncs", "batch"])
def test_what_was_bound_together_is_not_replaced_apart(name):
    """A loop and its mechanism would disagree."""
    bound = PRIVATE.bind(ENV.spec, 40)
    with pytest.raises(TypeError, match=f"{name} is fixed in a bound BatchLoop: give it to the recipe, and bind that"):
        bound.replace(**{name: 7})
