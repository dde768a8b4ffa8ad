"""Forged guarantees: whoever changes, after binding, anything that privacy rests on loses the claim.

A forgery changes what an honest recipe has bound, as a subclass does that overrides `bind`.
"""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from honest import HONEST, HORIZON, changed, honest, nosy, of, quiet, subclass

import fedbandit_jax as fb
from fedbandit_jax.interfaces import certify
from fedbandit_jax.privacy.admission import Admitted, BoundStatistic
from fedbandit_jax.privacy.bound import Exact, NoRelease, Timing
from fedbandit_jax.privacy.noisy_sums import Aggregated
from fedbandit_jax.privacy.releases import Blt, PrefixTree, Tree
from fedbandit_jax.privacy.trust import BoundGaussian, SiloLocal
from fedbandit_jax.schedules import BoundLogDet, BoundPrivateLogDet


@pytest.mark.parametrize("name", HONEST)
def test_the_honest_are_certified(name):
    found = certify(honest(name))
    assert found.claim == "certified"
    assert 0.9 * found.epsilon < found.epsilon_exact <= found.epsilon * (1 + 1e-6)
    if name == "amplified":
        assert "Lemma F.2" in found.accountant


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


@forgery("tree", "1 budgets for 4 silos")
def a_budget_that_is_no_table(bound):
    return changed(bound, "mechanism", epsilon=0.5)


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
    return changed(
        bound, "mechanism", statistic=dataclasses.replace(mechanism.statistic, rule=fb.privacy.Linear(clip=False))
    )


@forgery("tree", "another statistic")
def statistic_that_does_not_clip(bound):
    class Loose(BoundStatistic):
        def admit(self, x, y, seen=(), each=False):
            return Admitted(x, y, y < 0, y < 0)

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
    return changed(bound, "mechanism", users=fb.privacy.Users(3))


def unchecked(**bounds):
    users = fb.privacy.Users()
    for name, value in bounds.items():
        object.__setattr__(users, name, value)
    return users


@forgery("tree", "bounds of contributions must be integers >= 1")
def no_visits(bound):
    loud = changed(bound, "mechanism", trust=quiet(bound.mechanism.trust, 1000))
    return changed(loud, "mechanism", users=unchecked(visits=0))


@forgery("tree", "bounds of contributions must be integers >= 1")
def visits_lost_in_rounding(bound):
    return changed(bound, "mechanism", users=unchecked(visits=1.9))


@forgery("tree", "bounds of contributions must be integers >= 1")
def batches_apart_by_less_than_none(bound):
    return changed(bound, "mechanism", users=unchecked(apart=0))


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


@forgery("tree", "OwnSiloLocal is a trust model of its own")
def trust_that_overrides_noise(bound):
    own = subclass(SiloLocal, noise=lambda self, key, size: jnp.zeros(size))
    return changed(bound, "mechanism", trust=of(own, bound.mechanism.trust))


@forgery("own trust", "OwnBoundGaussian is a trust model of its own")
def trust_that_is_subclassed_after_binding(bound):
    return changed(bound, "mechanism", trust=of(subclass(BoundGaussian), bound.mechanism.trust))


@forgery("tree", "Silent was put in after binding")
def release_that_overrides_step(bound):
    class Silent(Tree):
        def step(self, state, k, z):
            return 0 * z, state

    return changed(bound, "mechanism", release=Silent(8))


@forgery("tree", "gives epsilon = [1-9]")
def release_with_more_levels(bound):
    return changed(bound, "mechanism", release=Tree(80))


@forgery("tree", "gives epsilon = [1-9]")
def more_synchronisations_than_levels(bound):
    leaves, structure = jax.tree.flatten(bound.mechanism.release)
    return changed(bound, "mechanism", release=jax.tree.unflatten(structure, [10 * leaf for leaf in leaves]))


@forgery("own release", "gives epsilon = inf")
def more_synchronisations_than_matrices_are_for(bound):
    release = bound.mechanism.release
    leaves, structure = jax.tree.flatten(release)
    longer = [10 * leaf if np.ndim(leaf) == 0 else leaf for leaf in leaves]
    return changed(bound, "mechanism", release=jax.tree.unflatten(structure, longer))


@forgery("banded", "gives epsilon = ")
def release_whose_messages_are_said_to_be_small(bound):
    coefficients = np.append(np.float32(0.6), bound.mechanism.release.coefficients[1:])
    bound = changed(bound, "mechanism.release", coefficients=coefficients)
    return changed(bound, "mechanism", trust=quiet(bound.mechanism.trust, 1.1))


@forgery("banded", "gives epsilon = ")
def release_with_other_bands(bound):
    return changed(bound, "mechanism.release", coefficients=np.ones(4, np.float32))


@forgery("own release", "gives epsilon = 53")
def matrices_with_less_noise(bound):
    release = bound.mechanism.release
    return changed(bound, "mechanism.release", factor=release.factor / 10)


@forgery("own release", "gives epsilon = inf")
def matrices_with_less_sensitivity(bound):
    release = bound.mechanism.release
    bound = changed(bound, "mechanism.release", c=release.c / 100)
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
    return changed(bound, "mechanism.trust", scale=-bound.mechanism.trust.scale)


@forgery("secagg", "no room for the messages of batches of 5 rounds")
def secure_aggregation_of_finer_steps(bound):
    return changed(bound, "mechanism.trust", scale=np.float32(2**12) * bound.mechanism.trust.scale)


@forgery("secagg geometric", "batches of at most 9 rounds, and runs with up to 20")
def a_larger_batch_than_secure_aggregation_has_room_for(bound):
    return changed(bound, "schedule", rounds=np.array([5, 25, 30], np.int32))


@forgery("secagg geometric", "batches of at most 9 rounds, and runs with up to 35")
def a_larger_first_batch_than_secure_aggregation_has_room_for(bound):
    return changed(bound, "schedule", rounds=np.array([35], np.int32))


@forgery("secagg geometric", "batches of at most 9 rounds, and runs with up to 40")
def a_batch_below_zero(bound):
    return changed(bound, "", schedule=dataclasses.replace(fb.schedules.Every(40).bind(None), batch=np.int32(-40)))


@forgery("secagg geometric", "batches of at most 4 rounds, and runs with up to 9")
def secure_aggregation_for_smaller_batches(bound):
    return changed(bound, "mechanism", batch=4)


@forgery("secagg geometric", "sizes that are fixed in advance, and a schedule decides")
def secure_aggregation_under_an_adaptive_schedule(bound):
    return changed(bound, "", schedule=honest("tested").schedule)


@forgery("secagg geometric", "sizes that are fixed in advance, and a schedule decides")
def secure_aggregation_under_a_schedule_of_ones_own(bound):
    own = subclass(type(bound.schedule), requests=lambda self, key, t, memory, gained, since: t > 30)
    return changed(bound, "", schedule=of(own, bound.schedule))


@forgery("secagg", "bound to batches of 5 rounds, and runs with 11")
def secure_aggregation_of_equal_batches_that_are_longer(bound):
    return changed(bound, "", batch=11)


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


@forgery("geometric", "sizes that are fixed in advance, and a schedule decides")
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
    return changed(bound, "", mechanism=NoRelease(n_agents=4))


@forgery("tested", "the schedule leaks")
def own_schedule_that_reads_users(bound):
    return changed(bound, "", schedule=nosy(reads="users"))


@forgery("tested", "the schedule leaks")
def own_schedule_that_reads_log_det(bound):
    return changed(bound, "", schedule=nosy(reads="log_det"))


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


@forgery("tree", "calls the host, or its class says that it may")
def policy_that_says_that_it_calls_the_host(bound):
    return changed(bound, "", policy=subclass(fb.algos.Thompson, calls_host=True)())


@forgery("tree", "numbers that 32 bits do not hold")
def integers_that_a_device_cuts(bound):
    return changed(bound, "mechanism.trust", std=np.full(4, 2**32, np.int64))


@forgery("tree", "numbers that 32 bits do not hold, such as 1e-42")
def numbers_that_a_device_flushes(bound):
    return changed(bound, "mechanism.trust", std=np.full(4, 1e-42))


@forgery("own release", "gives epsilon = inf")
def fresh_noise_that_float32_rounds_away(bound):
    n = bound.mechanism.release.n_syncs
    factor = 1e-5 * np.tril(np.ones((n, n)), -1) + 1e-37 * np.eye(n)
    return changed(bound, "mechanism.release", factor=factor.astype(np.float32))


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


@pytest.mark.parametrize(("field", "value"), [("epsilon", np.array([3.0])), ("delta", 0.2), ("adjacency", "zero_out")])
def test_a_weaker_statement_is_true_and_is_what_is_printed(field, value):
    found = certify(changed(honest("tree"), "mechanism", **{field: value}))
    assert found.claim == "certified"
    printed = {"epsilon": found.epsilon, "delta": found.delta, "adjacency": found.adjacency.split()[0]}
    assert printed[field] == (value[0] if field == "epsilon" else value)
    assert found.epsilon_exact <= 1 + 1e-6
