"""Forged guarantees: whoever changes anything that privacy rests on loses the claim, or is refused.

Every forgery starts from an honest object that is certified. `TAKEN_APART` changes it after binding, as a subclass of a
recipe does that overrides `bind`; `COMPOSED` composes something dishonest; the tests below them run what is left.
"""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from helpers import released

import fedbandit_jax as fb
from fedbandit_jax.interfaces import Status, certify
from fedbandit_jax.privacy import RELEASES, TRUST, GaussianTrust, budget
from fedbandit_jax.privacy.channel import Aggregated, Closed, Exact, Rounded, Timing
from fedbandit_jax.privacy.messages import Messages
from fedbandit_jax.privacy.releases import Blt, PrefixTree, Release, Tree, explicit
from fedbandit_jax.privacy.statistic import LinearStatistic
from fedbandit_jax.privacy.trust import SecAgg, SiloLocal
from fedbandit_jax.schedules import BoundLogDet, BoundPrivateLogDet, BoundSchedule, Schedule

SPEC = fb.Spec(n_agents=4, n_arms=3, dim=2, max_norm=1.0, rewards_in_unit=True)
UNBOUNDED = dataclasses.replace(SPEC, rewards_in_unit=False)
MANY = dataclasses.replace(SPEC, n_agents=10**5)
BUDGET = fb.privacy.Budget(1.0, 0.1)
HORIZON, BATCH = 40, 5  # S = 8


THOMPSON = fb.algos.Thompson()


def federated(policy=THOMPSON, budget=BUDGET, schedule=BATCH, learns_in_batch=False, **mechanism):
    privacy = fb.privacy.Mechanism(budget, **mechanism)
    return fb.algos.Federated(policy=policy, privacy=privacy, schedule=schedule, learns_in_batch=learns_in_batch)


@fb.pytree
class Pairs(GaussianTrust):
    sentence = "pairs of silos trust each other"

    @classmethod
    def n_sources(cls, ask):
        return (ask.n_agents + 1) // 2


class Prefixes(Release):
    """An honest release of one's own: send every prefix sum itself."""

    def encode_init(self, shape):
        return jnp.zeros(shape)

    def encode(self, state, k, gamma):
        return (state + gamma)[None], state + gamma

    def init(self, shape):
        return ()

    def decode(self, state, k, message):
        return message[0], state


@fb.pytree
class BoundOffice(BoundSchedule):
    """An honest schedule of one's own: nothing is handed to it."""

    def requests(self, key, t, memory, gained, since):
        return (t + 1) % 5 == 0


OFFICE = BoundOffice()


@dataclasses.dataclass(frozen=True)
class Office(Schedule):
    bound: BoundSchedule = OFFICE

    def n_syncs(self, horizon):
        return horizon // 5

    def bind(self, setting):
        return self.bound


HONEST = {
    "tree": (federated(), SPEC),
    "unbounded": (federated(), UNBOUNDED),
    "silos": (federated(budget=(BUDGET,) * 4), SPEC),
    "secagg": (federated(trust="secagg", release="blt"), SPEC),
    "vector sum": (federated(trust="shuffle_vector_sum"), SPEC),
    "amplified": (federated(budget=fb.privacy.Budget(0.1, 1e-6), trust="shuffle_amplified", schedule=1), MANY),
    "local": (federated(trust="local", release="input_perturbation"), SPEC),
    "messages": (federated(messages=True), SPEC),
    "own release": (federated(release=Prefixes), SPEC),
    "own trust": (federated(trust=Pairs), SPEC),
    "own schedule": (federated(schedule=Office()), SPEC),
    "geometric": (federated(schedule=fb.schedules.Geometric(1.5, first=5)), SPEC),
    "tested": (federated(policy=fb.algos.UCB(), schedule=fb.schedules.PrivateLogDet(3.0, max_syncs=8)), SPEC),
}


@functools.cache
def honest(name):
    algo, spec = HONEST[name]
    return algo.bind(spec, 3 if name == "amplified" else HORIZON)


@pytest.mark.parametrize("name", HONEST)
def test_the_honest_are_certified(name):
    found = certify(honest(name))
    assert found.claim == "certified"
    assert 0.9 * found.epsilon < found.epsilon_exact <= found.epsilon * (1 + 1e-6)
    if name == "amplified":
        assert "Lemma F.2" in found.accountant


def changed(value, path, **fields):
    """A copy with other fields in the part that `path` leads to."""
    first, _, rest = path.partition(".")
    return dataclasses.replace(
        value, **(fields if not path else {first: changed(getattr(value, first), rest, **fields)})
    )


def quiet(part, by):
    """The same trust model with its noise divided."""
    return dataclasses.replace(part, std=part.std / np.float32(by))


def of(cls, value, **fields):
    """An object of another class with the fields of this one."""
    mine = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return cls(**{**mine, **fields})


def subclass(parent, **methods):
    """What overrides these methods."""
    return fb.pytree(type(f"Own{parent.__name__}", (parent,), methods))


# ---------------------------------------------------------------------------------------------------------------------
# Changed after binding.

TAKEN_APART = {}


def forgery(start, words):
    def add(forge):
        assert forge.__name__ not in TAKEN_APART
        TAKEN_APART[forge.__name__] = start, forge, words
        return forge

    return add


@forgery("tree", "not a private algorithm")
def mechanism_without_noise(bound):
    return changed(bound, "", mechanism=Exact(n_agents=4))


@forgery("tree", "gives epsilon = 53")
def noise_divided_by_ten(bound):
    return changed(bound, "mechanism", trust=quiet(bound.mechanism.trust, 10))


@forgery("tree", "gives epsilon = inf")
def noise_of_one_silo_left_out(bound):
    return changed(bound, "mechanism.trust", std=bound.mechanism.trust.std * np.float32([1, 1, 0, 1]))


@forgery("tree", "gives epsilon = inf")
def noise_that_is_not_a_number(bound):
    return changed(bound, "mechanism.trust", std=bound.mechanism.trust.std * np.float32(np.nan))


@forgery("tree", r"\(3,\) noises for 4 silos")
def noise_for_fewer_silos(bound):
    return changed(bound, "mechanism.trust", std=bound.mechanism.trust.std[:3])


@forgery("silos", "gives epsilon = inf")
def noise_of_one_of_several_budgets(bound):
    return changed(bound, "mechanism.trust", std=bound.mechanism.trust.std * np.float32([1, 1, 1, 0]))


@forgery("silos", "2 budgets for 4 silos")
def budgets_of_the_honest_silos_only(bound):
    bound = changed(bound, "mechanism.trust", std=bound.mechanism.trust.std * np.float32([1, 1, 0, 0]))
    return changed(bound, "mechanism", epsilon=np.ones(2))


@forgery("tree", "bound for 40 silos")
def silos_that_are_not_there(bound):
    return changed(bound, "mechanism", n_agents=40)


@forgery("tree", "learns inside the batch")
def learns_in_batch_switched_on(bound):
    return changed(bound, "", learns_in_batch=True)


@forgery("geometric", "learns inside the batch")
def learns_in_batch_under_a_schedule(bound):
    return changed(bound, "", learns_in_batch=True)


@forgery("tree", "batches of 5 rounds, and runs with 1")
def synchronises_every_round(bound):
    return changed(bound, "", batch=1, n_syncs=HORIZON)


@forgery("unbounded", "rewards enter unclipped")
def clips_switched_off(bound):
    mechanism = bound.mechanism
    return changed(bound, "mechanism", statistic=dataclasses.replace(mechanism.statistic, clips=False))


@forgery("tree", "statistic is of a class of its own")
def statistic_that_does_not_clip(bound):
    class Loose(LinearStatistic):
        def admit(self, x, y):
            return x, y, y < 0

    return changed(bound, "mechanism", statistic=of(Loose, bound.mechanism.statistic))


@forgery("secagg", "another statistic")
def statistic_with_fewer_features(bound):
    return changed(bound, "mechanism.statistic", dim=1)


@forgery("tree", "another statistic")
def statistic_of_public_contexts(bound):
    return changed(bound, "mechanism.statistic", fixed_contexts=True)


@forgery("tree", "another statistic")
def environment_with_users_who_return(bound):
    return changed(bound, "", spec=dataclasses.replace(bound.spec, n_users=9))


@forgery("tree", "gives epsilon = [2-9]")
def visits_raised(bound):
    return changed(bound, "mechanism", visits=3)


@forgery("tree", "visits must be an integer >= 1")
def no_visits(bound):
    return changed(changed(bound, "mechanism", trust=quiet(bound.mechanism.trust, 1000)), "mechanism", visits=0)


@forgery("tree", "visits must be an integer >= 1")
def visits_lost_in_rounding(bound):
    return changed(bound, "mechanism", visits=1.9)


@forgery("tree", "OwnBatchLoop is an algorithm of its own")
def loop_that_overrides_one_method(bound):
    return of(subclass(type(bound), learn=lambda self, *given: super(type(bound), self).learn(*given)), bound)


@forgery("tree", "OwnBatchLoop is an algorithm of its own")
def loop_that_certifies_itself(bound):
    return of(subclass(type(bound), guarantee=lambda self: certify(bound)), bound)


@forgery("geometric", "OwnScheduledLoop is an algorithm of its own")
def scheduled_loop_that_overrides_one_method(bound):
    return of(subclass(type(bound), act=lambda self, *given: jnp.zeros(4, jnp.int32)), bound)


@forgery("tree", "Wrapper is an algorithm of its own")
def algorithm_that_delegates(bound):
    @fb.pytree
    class Wrapper(fb.Algorithm):
        inner: fb.Algorithm

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def guarantee(self):
            return self.inner.guarantee()

    return Wrapper(inner=bound)


@forgery("tree", "Disguised is an algorithm of its own")
def algorithm_in_disguise(bound):
    @fb.pytree
    class Disguised(fb.Algorithm):
        __class__ = type(bound)

        def guarantee(self):
            return certify(bound)

    return Disguised()


@forgery("tree", "OwnAggregated is a mechanism of its own")
def mechanism_that_overrides_the_release(bound):
    own = subclass(Aggregated, step=Exact.step)
    return changed(bound, "", mechanism=of(own, bound.mechanism))


@forgery("tree", "OwnAggregated is a mechanism of its own")
def mechanism_that_admits_everything(bound):
    own = subclass(Aggregated, admit=lambda self, x, y: (x, y, y < 0))
    return changed(bound, "", mechanism=of(own, bound.mechanism))


@forgery("tree", "OwnSiloLocal is code of its own.*noise")
def trust_that_overrides_noise(bound):
    own = subclass(SiloLocal, noise=lambda self, key, size: jnp.zeros(size))
    return changed(bound, "mechanism", trust=of(own, bound.mechanism.trust))


@forgery("tree", "Untouched is code of its own|put in after binding")
def trust_put_in_after_binding(bound):
    @fb.pytree
    class Untouched(GaussianTrust):
        pass

    return changed(bound, "mechanism", trust=Untouched(std=np.float32(100)))


@forgery("tree", "release is of a class of its own")
def release_that_overrides_step(bound):
    class Silent(Tree):
        def step(self, state, k, z):
            return 0 * z, state

    return changed(bound, "mechanism", release=Silent(8))


@forgery("tree", "gives epsilon = [1-9]")
def release_with_more_levels(bound):
    return changed(bound, "mechanism", release=Tree(80))


@forgery("tree", "std is no number, but of Liar")
def noise_of_the_class_lies_about_its_minimum(bound):
    class Liar(np.ndarray):
        def min(self, *args, **kwargs):
            return np.float32(100)

    return changed(bound, "mechanism.trust", std=(bound.mechanism.trust.std / 10).view(Liar))


@forgery("tree", "mechanism has guarantee of its own")
def guarantee_set_on_the_object(bound):
    forged = noise_divided_by_ten(bound)
    for value in (forged, forged.mechanism):
        object.__setattr__(value, "guarantee", lambda *args: certify(bound))
    return forged


@forgery("own release", "gives epsilon = 53")
def matrices_with_less_noise(bound):
    release = bound.mechanism.release
    factor = np.frombuffer(release.factor, np.float32) / 10
    return changed(bound, "mechanism.release", factor=factor.tobytes())


@forgery("own release", "gives epsilon = inf")
def matrices_with_less_sensitivity(bound):
    release = bound.mechanism.release
    bound = changed(bound, "mechanism.release", c=(np.frombuffer(release.c, np.float32) / 100).tobytes())
    return changed(bound, "mechanism", trust=quiet(bound.mechanism.trust, 100))


@forgery("own trust", "gives epsilon = 53")
def sources_of_a_hundredth(bound):
    return changed(bound, "mechanism.trust", sources=np.float32(0.01))


@forgery("own trust", "gives epsilon = 53")
def own_noise_divided_by_ten(bound):
    return changed(bound, "mechanism", trust=quiet(bound.mechanism.trust, 10))


@forgery("secagg", "gives epsilon = [1-9]")
def secure_aggregation_with_half_a_share(bound):
    return changed(bound, "mechanism.trust", share=bound.mechanism.trust.share / 2)


@forgery("secagg", "used with")
def secure_aggregation_with_more_silos(bound):
    return changed(bound, "mechanism.trust", n_agents=400)


@forgery("secagg", "gives epsilon = inf")
def secure_aggregation_upside_down(bound):
    return changed(bound, "mechanism.trust", scale=-1e3 * bound.mechanism.trust.scale)


@forgery("secagg", "prefix sums")
def secure_aggregation_of_prefixes(bound):
    return changed(bound, "mechanism", release=PrefixTree(8))


@forgery("local", "does not cover Tree")
def users_who_report_to_a_tree(bound):
    return changed(bound, "mechanism", release=Tree(8))


@forgery("local", "used with")
def users_of_a_larger_batch(bound):
    return changed(bound, "mechanism.trust", batch=500)


@forgery("vector sum", "gives epsilon = [1-9]")
def fewer_bits_of_noise(bound):
    return changed(bound, "mechanism.trust", b=bound.mechanism.trust.b / 4)


@forgery("vector sum", "do not hold all of its noise")
def narrower_messages(bound):
    return changed(bound, "mechanism.trust", width=4)


@forgery("vector sum", "too small for the normal limit")
def few_bits_drawn_as_normal(bound):
    assert bound.mechanism.trust.exact
    return changed(bound, "mechanism.trust", exact=False)


@forgery("vector sum", "used with")
def bits_of_more_users(bound):
    return changed(bound, "mechanism.trust", n_batch=10**4)


@forgery("amplified", "gives epsilon")
def a_silo_known_by_its_noise(bound):
    std = bound.mechanism.trust.std * np.float32(1000)
    std[0] /= 1000
    return changed(bound, "mechanism.trust", std=std)


@forgery("amplified", "does not cover Blt")
def amplification_of_another_release(bound):
    return changed(bound, "mechanism", release=Blt(3))


@forgery("amplified", "batches of one known size")
def amplification_of_batches_of_any_size(bound):
    return changed(bound, "mechanism", batch=None)


@forgery("geometric", "batches of one known size")
def a_schedule_for_secure_aggregation(bound):
    return changed(bound, "", mechanism=changed(honest("secagg").mechanism, "", batch=None))


@forgery("geometric", "batches of one known size")
def messages_of_batches_of_any_size(bound):
    return changed(bound, "", mechanism=changed(honest("messages").mechanism, "", batch=None))


@forgery("geometric", "Zhou & Chowdhury 2024, Example 3.1")
def schedule_swapped_for_a_leaky_one(bound):
    return changed(bound, "", schedule=BoundLogDet(threshold=np.float32(1)))


@forgery("tested", "not 1$")
def schedule_that_spends_more(bound):
    return changed(bound, "schedule", epsilon=bound.schedule.epsilon * np.float32(5))


@forgery("tested", "than an epsilon can be computed for")
def schedule_that_spends_less_than_nothing(bound):
    return changed(bound, "schedule", epsilon=np.float32(-0.5))


@forgery("tested", "tests 1 silos, there are 4")
def schedule_with_one_noise_for_all_silos(bound):
    return changed(bound, "schedule", n_agents=1)


@forgery("tested", "the schedule leaks")
def private_test_with_less_noise(bound):
    own = subclass(BoundPrivateLogDet, _scales=lambda self: (jnp.full(4, 1e-3), jnp.full(4, 1e-3)))
    return changed(bound, "", schedule=of(own, bound.schedule))


@forgery("tested", "and this schedule does")
def asking_for_what_is_never_released(bound):
    return changed(bound, "", mechanism=Closed(n_agents=4))


def nosy(**more):
    """A schedule that asks when a user has come who teaches much."""
    return subclass(
        BoundSchedule,
        count=lambda self, memory, leverage: (leverage > 0.5).astype(jnp.int32),
        requests=lambda self, key, t, memory, gained, since: gained > 0,
        **more,
    )()


@forgery("tested", "the schedule leaks")
def own_schedule_that_reads_users(bound):
    return changed(bound, "", schedule=nosy(reads="users"))


@forgery("tested", "the schedule leaks")
def own_schedule_that_reads_log_det(bound):
    return changed(bound, "", schedule=nosy(reads="log_det"))


@forgery("tested", "the schedule leaks")
def own_schedule_that_denies_its_door(bound):
    return changed(bound, "", schedule=nosy(reads="users", raw=property(lambda self: ())))


@forgery("tested", "the schedule leaks")
def own_schedule_that_says_what_it_spends(bound):
    cheap = Timing("fixed in advance, so it tells nothing about users", pure=1e-12, fixed=True)
    return changed(bound, "", schedule=nosy(reads="users", timing=lambda self: cheap))


@forgery("tested", "the schedule leaks")
def own_schedule_that_changes_its_mind(bound):
    return changed(bound, "", schedule=nosy(reads=property(lambda self: "nothing")))


class Together(fb.algos.Thompson):
    """Looks at the users of all agents."""

    def indices(self, key, t, prepared, offered):
        return (offered.contexts.sum(0) @ jnp.ones(2))[:, None] + jnp.zeros(4)


@forgery("tree", "scores the users of all agents")
def policy_that_scores_all_users_together(bound):
    return changed(bound, "", policy=fb.pytree(Together)())


@forgery("geometric", "scores the users of all agents")
def policy_that_prepares_for_the_first_users(bound):
    own = subclass(fb.algos.Thompson, prepare=lambda self, belief, offered, fixed: offered.contexts)
    return changed(bound, "", policy=own())


@forgery("tree", "learns inside the batch, from the raw rewards of the users of all silos")
def policy_that_pools_the_batch(bound):
    own = subclass(fb.algos.UCB, learn=lambda self, prepared, offered, x, y: prepared)
    return changed(bound, "", policy=own(), learns_in_batch=True)


@forgery("tree", "learns inside the batch, from the raw rewards of the users of all silos")
def policy_of_ones_own_that_learns(bound):
    return changed(bound, "", policy=subclass(fb.algos.Thompson)(), learns_in_batch=True)


@forgery("tree", "scores the users of all agents")
def policy_with_a_field_for_a_method(bound):
    class Field(fb.algos.Thompson):
        indices: object = fb.static()

    return changed(bound, "", policy=fb.pytree(Field)(indices=Together.indices))


@forgery("tree", "changes how its attributes are read")
def policy_with_two_faces(bound):
    return changed(bound, "", policy=subclass(fb.algos.Thompson, __getattr__=lambda self, name: None)())


@forgery("tree", "its class says that it may call the host")
def policy_that_says_that_it_is_not_pure(bound):
    return changed(bound, "", policy=subclass(fb.algos.Thompson, pure=False)())


@forgery("tree", "std is an integer that has no place in 32 bits")
def integers_that_a_device_cuts(bound):
    return changed(bound, "mechanism.trust", std=np.full(4, 2**32, np.int64))


@forgery("tree", "std is a number that float32 does not hold")
def numbers_that_a_device_flushes(bound):
    return changed(bound, "mechanism.trust", std=np.full(4, 1e-42))


@forgery("tree", "std is no number, but of Half")
def number_that_is_half_of_what_it_says(bound):
    class Half(np.ndarray):
        pass

    return changed(bound, "mechanism.trust", std=np.ones(4).view(Half))


@forgery("tree", "mechanism.release has step of its own")
def release_with_a_method_of_its_own(bound):
    release = dataclasses.replace(bound.mechanism.release)
    object.__setattr__(release, "step", lambda state, k, z: (0 * z, state))
    return changed(bound, "mechanism", release=release)


@forgery("tree", "adjacency is of a class of its own")
def adjacency_that_is_two_things(bound):
    return changed(bound, "mechanism", adjacency=type("Both", (str,), {})("replace"))


@forgery("own release", "gives epsilon = inf")
def fresh_noise_that_float32_rounds_away(bound):
    n = bound.mechanism.release.n_syncs
    factor = 1e-5 * np.tril(np.ones((n, n)), -1) + 1e-37 * np.eye(n)
    return changed(bound, "mechanism.release", factor=factor.astype(np.float32).tobytes())


@forgery("vector sum", "numbers of steps and of noise bits must be at least 1")
def steps_below_zero(bound):
    return changed(bound, "mechanism.trust", g=-np.asarray(bound.mechanism.trust.g))


class Forged(fb.algos.Federated):
    """A recipe that overrides `bind`, and says what it likes of it."""

    def bind(self, spec, horizon):
        return TAKEN_APART[self.name][1](honest(TAKEN_APART[self.name][0]))

    def certificate(self, spec, horizon):
        return certify(honest("tree"))


@pytest.mark.parametrize("name", TAKEN_APART)
def test_changed_after_binding(name):
    start, _, words = TAKEN_APART[name]
    algo, spec = HONEST[start]
    forged = certify(of(Forged, algo, name=name).bind(spec, HORIZON))
    assert forged.claim in ("none", "as_printed")
    assert re.search(words, forged.reason)
    if forged.claim == "none" and forged.epsilon_exact is not None:
        assert forged.epsilon_exact > forged.epsilon * (1 + 1e-4)


@pytest.mark.parametrize("by", [0.5, 1.01, 3, 10])
def test_epsilon_is_that_of_the_noise(by):
    """Not only is the claim lost: what the noise gives is computed anew, and noise that is larger gives less."""
    bound = honest("tree")
    forged = certify(changed(bound, "mechanism", trust=quiet(bound.mechanism.trust, by)))
    sigma = certify(bound).noise_std / by
    assert forged.epsilon_exact == pytest.approx(fb.privacy.epsilon_of(sigma, delta=0.1, n_syncs=8), rel=1e-5)
    assert forged.claim == ("certified" if by < 1 else "none")


@pytest.mark.parametrize(
    ("field", "value"), [("epsilon", np.array([3.0])), ("delta", 0.2), ("adjacency", "add_remove")]
)
def test_a_weaker_statement_is_true_and_is_what_is_printed(field, value):
    found = certify(changed(honest("tree"), "mechanism", **{field: value}))
    assert found.claim == "certified"
    printed = {"epsilon": found.epsilon, "delta": found.delta, "adjacency": found.adjacency.split()[0]}
    assert printed[field] == (value[0] if field == "epsilon" else value)
    assert found.epsilon_exact <= 1 + 1e-6


# ---------------------------------------------------------------------------------------------------------------------
# Composed dishonestly.


def trust(**methods):
    return lambda: federated(trust=subclass(GaussianTrust, **methods))


def normal(self, key, size):
    return GaussianTrust.noise(self, key, size)


traced = []


def second_thoughts(self, key, size):
    """Noise in the first trace, which may be somebody's check, and none in the next."""
    traced.append(key)
    return normal(self, key, size) * (len(traced) == 1)


def release(parent=Prefixes, **methods):
    return lambda: federated(release=type("Own", (parent,), methods))


def bent(self, state, k, gamma):
    """Twice what was asked for, from message 7 on, for those who give more than a little."""
    large = jnp.where((k > 6) & (abs(gamma) > 0.5), 2, 1)
    return (state + large * gamma)[None], state + gamma


@dataclasses.dataclass(frozen=True)
class Cheap(fb.schedules.PrivateLogDet):
    """Keeps the releases' noise that of a schedule which spends nothing."""

    def pure(self, epsilon):
        return 1e-12 * epsilon

    def bind(self, setting):
        return fb.schedules.PrivateLogDet(3.0, share=0.5).bind(setting)


@dataclasses.dataclass(frozen=True)
class EasyBudget(fb.privacy.Budget):
    joint_sensitivity_sq = 1e-6


class OpenMechanism(fb.privacy.Mechanism):
    def bind(self, statistic, **sizes):
        made = super().bind(statistic, **sizes)
        return of(subclass(type(made), step=Exact.step), made)


COMPOSED = {
    "trust: noise / 10": (trust(noise=lambda s, key, n: normal(s, key, n) / 10), "code of its own"),
    "trust: noise * 0.95": (trust(noise=lambda s, key, n: normal(s, key, n) * 0.95), "code of its own"),
    "trust: ignores its key": (trust(noise=lambda s, key, n: normal(s, jax.random.key(0), n)), "code of its own"),
    "trust: correlated": (trust(noise=lambda s, key, n: normal(s, key, n).at[2].set(normal(s, key, n)[0])), "its own"),
    "trust: Laplace": (trust(noise=lambda s, key, n: s.std * jax.random.laplace(key, (n,)) / 2**0.5), "its own"),
    "trust: second thoughts": (trust(noise=second_thoughts), "code of its own"),
    "trust: its own proof": (trust(proof=lambda s, ask: SiloLocal.proof(s, ask)), r"code of its own.*\(proof\)"),
    "trust: its own sum": (trust(sum_std=lambda s: 1e-3), "code of its own"),
    "trust: a state": (trust(init=lambda s, size: jnp.zeros(size)), "code of its own"),
    "trust: few sources": (trust(n_sources=classmethod(lambda cls, ask: 1e-4)), "sources >= 1"),
    "trust: calibrated to little": (
        trust(calibrate=classmethod(lambda cls, ask, method: cls(std=np.float32(0.1)))),
        "not 1$",
    ),
    "trust: no Gaussian one": (lambda: federated(trust=subclass(SecAgg, sentence="mine")), "code of its own"),
    "release: step without noise": (release(step=lambda s, state, k, z: (0 * z, state)), "step must draw"),
    "release: less sensitivity": (release(sensitivity_sq=lambda s: 1e-4), "sensitivity_sq must be that"),
    "release: nonlinear later": (release(encode=bent), "must be linear"),
    "release: sums left out": (release(decode=lambda s, state, k, m: (m[0] * (k < 5), state)), "sum of all batches"),
    "release: for another horizon": (lambda: federated(release=lambda n: Tree(n - 1)), "n_syncs = 8"),
    "release: no release": (lambda: federated(release=lambda n: n), "must make an fb.privacy.Release"),
    "schedule: pays too little": (lambda: federated(policy=fb.algos.UCB(), schedule=Cheap()), "not 1$"),
    "schedule: unknown reading": (
        lambda: federated(policy=fb.algos.UCB(), schedule=Office(nosy(reads="everything"))),
        "reads must be one of",
    ),
    "schedule: no schedule": (lambda: federated(schedule=Office(bound=None)), "must return an fb.schedules"),
    "budgets with two deltas": (lambda: federated(budget=(BUDGET, fb.privacy.Budget(1, 1e-9)) * 2), "one delta"),
    "budgets for too few silos": (lambda: federated(budget=(BUDGET,) * 3), "one budget for each of 4 silos"),
    "budget with a sensitivity": (lambda: federated(budget=EasyBudget(1.0, 0.1)), "not 1$"),
    "mechanism of its own": (
        lambda: fb.algos.Federated(policy=fb.algos.Thompson(), privacy=OpenMechanism(BUDGET), schedule=BATCH),
        "is a mechanism of its own",
    ),
    "shuffled prefixes": (lambda: federated(trust="shuffle_amplified", release="blt"), "release must be 'tree'"),
    "schedule under secure aggregation": (
        lambda: federated(trust="secagg", schedule=fb.schedules.Geometric()),
        "schedule that is not",
    ),
    "as the authors' code": (lambda: federated(calibration="released"), "'released' noise gives"),
}


def refusal(make):
    """Why nothing is claimed, or what the error says."""
    try:
        found = make().certificate(SPEC, HORIZON)
    except (ValueError, TypeError, AttributeError) as error:
        return str(error)
    assert found.claim == "none"
    return found.reason


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_dishonestly(name):
    make, words = COMPOSED[name]
    assert re.search(words, refusal(make))


class Silent(Tree):
    """Adds nothing up."""

    def step(self, state, k, z):
        return 0 * z, state


@pytest.mark.parametrize(
    ("registry", "name", "value", "options", "words"),
    [
        (RELEASES, "tree", Blt, {"trust": "shuffle_amplified"}, "release must be"),
        (RELEASES, "tree", lambda n: Tree(2 * n), {}, "for n_syncs = 8"),
        (RELEASES, "blt", Silent, {"release": "blt"}, "step must draw"),
        (RELEASES, "blt", PrefixTree, {"release": "blt", "trust": "secagg"}, "prefix sums"),
        (TRUST, "silo_local", subclass(SiloLocal, noise=lambda s, key, n: jnp.zeros(n)), {}, "code of its own"),
        (TRUST, "silo_local", subclass(SiloLocal), {}, "its own|put in after binding"),
        (TRUST, "secagg", object, {"trust": "secagg"}, "attribute|Trust"),
    ],
)
def test_registries_changed(monkeypatch, registry, name, value, options, words):
    monkeypatch.setitem(registry, name, value)
    assert re.search(words, refusal(lambda: federated(**options)))


def test_sensitivities_cannot_be_changed():
    for table in (budget.JOINT_SENSITIVITY_SQ, budget.MATRIX_SENSITIVITY_SQ):
        with pytest.raises(TypeError, match="does not support item assignment"):
            table["replace"] = 1e-6  # pyright: ignore[reportIndexIssue]


def test_a_policy_cannot_reach_the_noise():
    """What `bind` is told of the mechanism is a copy."""

    class Vandal(fb.algos.Thompson):
        def bind(self, law):
            law.mechanism.trust.std[:] = 0
            law.stds[:] = 0
            return self

    bound = federated(policy=fb.pytree(Vandal)()).bind(SPEC, HORIZON)
    assert certify(bound).claim == "certified"
    assert (bound.mechanism.trust.std == honest("tree").mechanism.trust.std).all()


def test_what_is_not_live_is_not_sent():
    """Data in a part that is said not to be sent: there is none in the messages that are made."""

    class Smuggled(Prefixes):
        n_parts = 2

        def live(self, k):
            return jnp.array([True, False])

        def encode(self, state, k, gamma):
            return jnp.stack([state + gamma, 1e3 * gamma]), state + gamma

        def step(self, state, k, z):
            return z, state

    made = explicit(Smuggled(8))
    message = jax.jit(lambda: made.encode(made.encode_init((3,)), 1, jnp.ones(3))[0])()
    assert message.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert made.sensitivity_sq() == pytest.approx(8)
    assert federated(release=Smuggled).certificate(SPEC, HORIZON).claim == "certified"


def test_forged_classes_share_no_program():
    """A compiled program is found by equality of its static parts: a lookalike must not be equal to the honest one."""

    class Loose(LinearStatistic):
        def admit(self, x, y):
            return x, y, y < 0

    bound = honest("tree")
    one = bound.mechanism.statistic
    forged = changed(bound, "mechanism", statistic=of(Loose, one))
    assert jax.tree.structure(bound) != jax.tree.structure(forged)
    assert jax.tree.structure(bound) == jax.tree.structure(changed(bound, "mechanism.statistic", dim=2))


RETURNING = dataclasses.replace(SPEC, n_users=12)


def test_returning_users_are_said_to_return():
    """By the environment's own spec; what is protected then must be asked for."""
    found = federated(visits=1).certificate(RETURNING, HORIZON)
    assert (found.claim, found.unit.split(";")[0]) == (
        "certified",
        "one interaction, i.e. what a user did in one round",
    )
    assert "users return in this environment, and nobody is protected in more rounds together" in found.unit
    thrice = federated(visits=3).certificate(RETURNING, HORIZON)
    assert thrice.unit.startswith("what a user did in any 3 rounds at one silo; users return")
    assert thrice.noise_std == pytest.approx(3 * found.noise_std, rel=1e-6)
    assert "counts as a new user" in federated().certificate(SPEC, HORIZON).unit
    assert federated().certificate(SPEC, HORIZON) == federated(visits=1).certificate(SPEC, HORIZON)


@pytest.mark.parametrize(
    "algo",
    [
        federated(),
        federated(release="blt", trust="central"),
        federated(schedule=fb.schedules.Geometric()),
        federated(schedule=fb.schedules.PrivateLogDet(), policy=fb.algos.UCB()),
        federated(schedule=1000),  # longer than the run, so that nothing is released
        fb.algos.fed_ucb(BUDGET),
        fb.algos.GossipFedUCB(graph=nx.path_graph(SPEC.n_agents), privacy=BUDGET),
    ],
    ids=["tree", "blt", "geometric", "private", "closed", "FedUCB", "gossip"],
)
def test_returning_users_need_visits(algo):
    words = (
        r"visits must say how many rounds of one user are protected together, as the 12 users of .* got None: visits=1"
    )
    with pytest.raises(ValueError, match=words):
        algo.bind(RETURNING, HORIZON)
    told = algo.replace(visits=1) if algo.takes("visits") else algo
    assert told is not algo
    told.bind(RETURNING, HORIZON)


def test_gossip_cannot_be_certified():
    """Not even under a schedule that claims to read nothing: its code hands out what agents gained."""
    algo = fb.algos.GossipFedUCB(graph=nx.path_graph(4), privacy=BUDGET)
    bound = algo.bind(SPEC, HORIZON)
    for forged in (bound, changed(bound, "", schedule=BoundOffice()), changed(bound, "", sizes=bound.sizes / 1e6)):
        assert certify(forged).claim == "none"
        assert certify(forged).epsilon_exact == math.inf


# ---------------------------------------------------------------------------------------------------------------------
# Run.


@pytest.mark.parametrize("form", [Aggregated, Rounded, Messages])
def test_nothing_is_released_beyond_what_is_paid_for(form, key):
    """A mechanism for two releases, asked for a third: no number comes out, and no silo's message."""
    options = {Aggregated: {}, Rounded: {"trust": "secagg"}, Messages: {"messages": True, "trust": "secagg"}}[form]
    mechanism = federated(**options).bind(SPEC, 2 * BATCH).mechanism
    assert type(mechanism) is form
    x, y = np.full((BATCH, 2, 4), 0.5, np.float32), np.ones((BATCH, 4), np.float32)
    step = jax.jit(lambda k, state, x: released(mechanism, jax.random.fold_in(key, k), k, state, x, y))
    state = mechanism.init(2)
    for k in (1, 2):
        statistics, state = step(k, state, x)
        assert np.isfinite(statistics).all()
    third, later = step(3, state, x)
    other, _ = step(3, state, 0 * x)
    assert np.isnan(third).all()
    assert np.isnan(other).all()
    shown = np.asarray(later.view)
    np.testing.assert_array_equal(shown, shown if form is not Messages else np.asarray(state.view))
    assert form is Messages or np.isnan(shown).all()


class Longer(fb.algos.Federated):
    """Binds for half of the horizon that it is run for, and has its loop believe otherwise."""

    def bind(self, spec, horizon):
        return changed(super().bind(spec, horizon // 2), "", n_syncs=horizon // self.schedule.batch)


@pytest.fixture(scope="module")
def world():
    return fb.envs.sphere(4, 3, 2, rewards="bernoulli")


def run(env, algo, horizon=8, **options):
    return fb.simulate(env, algo, horizon=horizon, key=jax.random.key(0), n_seeds=2, progress=False, **options)


@pytest.mark.slow
def test_horizon_longer_than_bound_for(world):
    """Agents keep their last estimate: they act as if nothing had been sent."""
    algo = federated(schedule=2)
    honest = run(world, algo.bind(world.spec, 4))
    assert honest.communication["rounds"][:, -1].tolist() == [2, 2]
    assert honest.certificate.releases == 2
    forged = run(world, of(Longer, algo), throw=False)
    assert forged.certificate.claim == "certified"  # of two releases, and no more are made
    assert (forged.status & Status.NO_ESTIMATE).all()
    np.testing.assert_array_equal(forged.regret, honest.regret)


def test_the_result_says_what_ran(world):
    """Whatever a recipe's own `certificate` says, and whatever it wraps."""

    class Boasts(fb.algos.Federated):
        def certificate(self, spec, horizon):
            return certify(honest("tree"))

        def bind(self, spec, horizon):
            return changed(super().bind(spec, horizon), "", mechanism=Exact(n_agents=spec.n_agents))

    @fb.pytree
    class Wraps(fb.Algorithm):
        inner: fb.Algorithm

        def bind(self, spec, horizon):
            return Wraps(inner=self.inner.bind(spec, horizon))

        def init(self, key, spec):
            return self.inner.init(key, spec)

        def download(self, state, offered):
            return self.inner.download(state, offered)

        def act(self, key, t, local, offered):
            return self.inner.act(key, t, local, offered)

        def learn(self, t, local, offered, arms, rewards):
            return self.inner.learn(t, local, offered, arms, rewards)

        def sync(self, key, k, state, local, records):
            return self.inner.sync(key, k, state, local, self.inner.gather(records))

        def guarantee(self):
            return self.inner.guarantee()

    algo = federated(schedule=1)
    assert of(Boasts, algo).certificate(world.spec, 8).claim == "certified"
    assert run(world, of(Boasts, algo)).certificate.claim == "none"
    assert run(world, Wraps(inner=algo)).certificate.claim == "none"


def test_environment_swapped_after_binding(world):
    class Other:
        """The same world, with features twice as long."""

        spec = dataclasses.replace(world.spec, max_norm=2.0)

        def __getattr__(self, name):
            return getattr(world, name)

    with pytest.raises(ValueError, match="was bound to another environment"):
        run(Other(), federated().bind(world.spec, 8))
    with pytest.raises(ValueError, match="norm <= 1"):
        run(Other(), federated())


@fb.pytree
class Lies:
    """Says what `claims` says, and does what it likes."""

    world: fb.Environment
    claims: fb.Spec = fb.static()
    longer: float = 1.0
    more: float = 1.0

    @property
    def spec(self):
        return self.claims

    def init(self, key):
        return self.world.init(key)

    def observe(self, key, world, t):
        offered, world = self.world.observe(key, world, t)
        return offered._replace(contexts=self.longer * offered.contexts), world

    def pull(self, key, world, offered, arms):
        feedback = self.world.pull(key, world, offered, arms)
        return feedback._replace(reward=self.more * feedback.reward)


@pytest.mark.parametrize("lie", [{"longer": 30.0}, {"more": 30.0}, {"more": -1.0}, {"more": math.nan}])
def test_environments_that_lie(world, lie):
    """What they promise is enforced where it enters, and the seed says so."""
    result = run(Lies(world=world, claims=world.spec, **lie), federated(schedule=2), horizon=6, throw=False)
    assert result.certificate.claim == "certified"
    assert (result.status & Status.OUTSIDE_SPEC).all()


def test_environment_that_denies_what_is_public(world):
    """Whose contexts are said to be fixed has their rewards protected and no more, and the certificate says it."""
    env = Lies(world=world, claims=dataclasses.replace(world.spec, fixed_contexts=True))
    found = certify(federated(schedule=2).bind(env.spec, 2))
    assert "one user's rewards changed; contexts are fixed for each silo and public" in found.adjacency
    assert "contexts, which are fixed and public" in found.not_covered


def test_environment_that_denies_its_users():
    """Who says that nobody returns may not tell users apart."""
    world = fb.envs.clustered(n_users=6, n_servers=2, n_clusters=2, dim=3)
    env = Lies(world=world, claims=dataclasses.replace(world.spec, n_users=0))
    with pytest.raises(TypeError, match="no user: env.spec.n_users is 0"):
        run(env, federated(schedule=2), horizon=2)


def test_keys_whose_draws_are_somebody_elses(world):
    with pytest.raises(ValueError, match="threefry2x32"):
        fb.simulate(world, federated(), horizon=2, key=jax.random.key(0, impl="rbg"), n_seeds=1)


def test_what_enters_a_statistic_is_bounded():
    admit = jax.jit(honest("tree").mechanism.admit)
    x = np.array([[30.0, np.nan, np.inf, 0.6], [40.0, 0.0, 0.0, 0.8]], np.float32)
    y = np.array([7.0, np.nan, -np.inf, 0.5], np.float32)
    features, rewards, broken = admit(x, y)
    np.testing.assert_allclose(features, [[0.6, 0, 0, 0.6], [0.8, 0, 0, 0.8]], rtol=1e-6)
    assert rewards.tolist() == [1, 0, 0, 0.5]
    assert broken.tolist() == [True, True, True, False]


def test_what_reaches_a_policy(key):
    """Rewards of the batch that goes on do not; what is released does, and what the user who came is offered."""
    seen = []

    class Records(fb.algos.Thompson):
        pure = False

        def update(self, k, released):
            jax.debug.callback(lambda *given: seen.append(("update", given)), *released)
            return super().update(k, released)

        def index(self, key, t, belief, contexts):
            jax.debug.callback(lambda *given: seen.append(("index", given)), *belief, contexts)
            return super().index(key, t, belief, contexts)

    bound = federated(policy=fb.pytree(Records)(), schedule=1).bind(SPEC, 2)
    assert certify(bound).claim == "none"  # it tells the host
    offered = fb.Round(jax.random.normal(key, (4, 3, 2)) / 3)

    @jax.jit
    def play(reward):
        state = bound.init(key, SPEC)
        local = bound.download(state, offered)
        arms = bound.act(key, jnp.int32(0), local, offered)
        return state, *bound.learn(jnp.int32(0), local, offered, arms, reward)

    @jax.jit
    def end(state, local, record):
        records = jax.tree.map(lambda leaf: leaf[None], record)
        return bound.sync(key, jnp.int32(0), state, local, bound.gather(records))

    def batch(reward):
        seen.clear()
        played = play(jnp.full(4, reward))
        jax.effects_barrier()
        before = sorted(seen, key=repr)
        end(*played)
        jax.effects_barrier()
        return before, seen[-1], played[-1]

    calm, (name, (gram, bias, *_)), record = batch(0.0)
    loud, (_, (same, moved, *_)), _ = batch(1.0)
    assert ([name for name, _ in calm], name) == (4 * ["index"] + ["update"], "update")
    shapes = {name: [np.shape(part) for part in given] for name, given in calm}
    assert shapes == {"update": [(2, 2), (2,), (), ()], "index": [(2,), (2, 2), (3, 2)]}
    for (_, one), (_, other) in zip(calm, loud):
        for a, b in zip(one, other):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(gram, same)
    np.testing.assert_allclose(moved - bias, record.x.sum(-1), rtol=1e-3)  # through the mechanism, under its noise
    assert abs(bias).max() > 0.1


@pytest.mark.slow
def test_checkpoint_under_changed_code(world, tmp_path):
    """Of a policy, and with a release of one's own."""

    def policy(scale):
        def index(self, key, t, belief, contexts):
            return scale * contexts @ belief.sample(key)

        return fb.pytree(type("Mine", (fb.algos.Thompson,), {"index": index, "__module__": "mine"}))()

    path = tmp_path / "run"
    run(world, federated(policy=policy(1), schedule=2), horizon=2, checkpoint=path)
    run(world, federated(policy=policy(1), schedule=2), horizon=2, checkpoint=path)
    for other in (
        federated(policy=policy(2), schedule=2),  # a class of the same name
        federated(policy=policy(1), schedule=2, release=Prefixes),
    ):
        with pytest.raises(ValueError, match="belongs to another run"):
            run(world, other, horizon=2, checkpoint=path)
