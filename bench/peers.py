"""Measures plain bandits in this library and in three others, at the example of jax-bandits.

python bench/peers.py [--smoke] [--json] [--jax-bandits PATH]

An environment has 16 Bernoulli arms with means uniform in [0, 1], the same in all libraries. Each of 4,096 rounds has
one reward, and nothing is private. This library has no rule that learns from every plain reward, so `Plain` writes
three as a user would. MABWiser and SMPyBandits are Python loops, and play few environments. MABWiser's simulator
replays a log and draws no rewards, so the loop calls `predict` and `partial_fit`. SMPyBandits' epsilon-greedy compares
sums of rewards in place of means, so its regret has no z. Two names that JAX and SciPy have removed are put back for
jax-bandits and SMPyBandits. Regrets of one rule must agree, or the exit code is 1.

Peers are optional: `pip install mabwiser SMPyBandits flax`, and a checkout of github.com/StoneT2000/jax-bandits.
"""

import contextlib
import dataclasses
import importlib.metadata
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import measure
import numpy as np
import scipy.special
import tyro
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.core import random

PEERS = {"jax-bandits": "jaxbandits", "MABWiser": "mabwiser.mab", "SMPyBandits": "SMPyBandits.Policies"}
RULES = {"epsilon-greedy": "EpsilonGreedy", "UCB1": "UCB1", "Thompson": "ThompsonSampling"}  # names in two of them
EXPLORE = 0.01  # epsilon of epsilon-greedy
ENV = dataclasses.replace(fb.envs.arms(16, rewards="bernoulli"), low=0.0, high=1.0)  # means are uniform in [0, 1]
ENVIRONMENTS = {"Thompson": 128, "MABWiser": 8, "SMPyBandits": 64}  # of a turn; otherwise 1,024


@fb.pytree
class Plain(fb.Algorithm):
    """Epsilon-greedy, UCB1 or Thompson sampling of one agent, on the pulls and sums of rewards of every arm."""

    batch = 64  # rounds between two synchronisations, in which nothing is exchanged
    rule: str = fb.static(default="UCB1")

    def init(self, key: Any, spec: Any) -> Any:
        return jnp.zeros((2, spec.n_arms))

    def act(self, key: Any, t: Any, local: Any, offered: Any) -> Any:
        (n, sums), coin = local, jax.random.fold_in(key, 1)
        index = jax.random.beta(key, 1 + sums, 1 + n - sums) if self.rule == "Thompson" else sums / jnp.maximum(n, 1)
        if self.rule == "UCB1":
            index = jnp.where(n > 0, index + jnp.sqrt(2 * jnp.log(t) / jnp.maximum(n, 1)), jnp.inf)
        elif self.rule == "epsilon-greedy":
            index = jnp.where(jax.random.uniform(coin) > EXPLORE, index, jax.random.uniform(key, n.shape))
        return jnp.argmax(index).astype(jnp.int32)[None]

    def learn(self, t: Any, local: Any, offered: Any, arms: Any, rewards: Any) -> Any:
        return local.at[:, arms[0]].add(jnp.stack([1.0, rewards[0]])), ()


@partial(jax.jit, static_argnums=1)
def means_of(key: Any, n: int) -> Any:  # (n, K), the means of our environments
    return jax.vmap(lambda i: ENV.init(random.stream(jax.random.fold_in(key, i), "world")))(jnp.arange(n))


def ours(rule: str, n: int, horizon: int, turn: int) -> np.ndarray:
    run: dict[str, Any] = dict(key=jax.random.key(turn), horizon=horizon, seeds=n, progress=False)
    return fb.simulate(ENV, Plain(rule=rule), **run).regret[:, -1]


def jax_bandits(rule: str, n: int, horizon: int, turn: int) -> np.ndarray:
    lib, bernoulli = (importlib.import_module(f"jaxbandits{name}") for name in ("", ".envs.bernoulli"))
    means = means_of(jax.random.key(turn), n)
    env = lib.BernoulliBandits(16, bernoulli.BernoulliBanditsState(means, means.argmax(1)))
    algos = jax.vmap(getattr(lib.algos, RULES[rule]).create, in_axes=[None], axis_size=n)(16)
    play = jax.vmap(lib.experiment, in_axes=[0, 0, 0, None], axis_size=n)
    return np.asarray(play(jax.random.split(jax.random.PRNGKey(turn), n), env, algos, horizon)["regret"]).sum(1)


def mabwiser(rule: str) -> Any:
    lib, arms = importlib.import_module(PEERS["MABWiser"]), list(range(16))
    policy = getattr(lib.LearningPolicy, RULES[rule])(*{"epsilon-greedy": [EXPLORE], "UCB1": [1]}.get(rule, []))
    mab, first = lib.MAB(arms, policy), arms[: 16 if rule == "UCB1" else 1]  # pulled before it has learned
    return (lambda: first.pop() if first else mab.predict()), (lambda arm, y: mab.partial_fit([arm], [y]))


def smpybandits(rule: str) -> Any:
    lib = importlib.import_module(PEERS["SMPyBandits"])
    policy = {"UCB1": lib.UCB, "Thompson": lib.Thompson}.get(rule, partial(lib.EpsilonGreedy, epsilon=EXPLORE))(16)
    policy.startGame()
    return policy.choice, policy.getReward


def looped(made: Any, rule: str, n: int, horizon: int, turn: int) -> np.ndarray:
    regret = np.zeros(n)
    for i, means in enumerate(np.asarray(means_of(jax.random.key(turn), n), np.float64)):
        choose, learn = made(rule)
        for coin in np.random.default_rng([turn, i]).random(horizon):
            arm = choose()
            learn(arm, float(coin < means[arm]))
            regret[i] += means.max() - means[arm]
    return regret


LOOPS = {"MABWiser": partial(looped, mabwiser), "SMPyBandits": partial(looped, smpybandits)}
PLAY = {"fedbandit_jax": ours, "jax-bandits": jax_bandits, **LOOPS}


def missing() -> dict[str, str]:
    """Imports the peers; returns by name why one is left out."""
    why, gone = {}, {(jax.random, "KeyArray"): jax.Array, (scipy.special, "btdtri"): scipy.special.betaincinv}
    for (module, name), value in gone.items():
        setattr(module, name, value)
    for peer, module in PEERS.items():
        try:
            with contextlib.redirect_stdout(sys.stderr):  # SMPyBandits prints warnings
                importlib.import_module(module)
        except ImportError as error:
            why[peer] = f"{peer} is left out: {error}"
    return why


def measured(libraries: list[str], horizon: int, turns: int, most: int) -> list[measure.Row]:
    """Returns the rows of all rules; z compares regret with ours in the same environments, at most `most`."""
    compilations, rows = measure.Compilations(), []
    for rule in RULES:
        size = {name: min(most, *(ENVIRONMENTS.get(which, most) for which in (rule, name))) for name in libraries}
        runs = {name: partial(PLAY[name], rule, size[name], horizon) for name in libraries}
        times = measure.in_turns(runs, turns, compilations)
        base = np.array(times["fedbandit_jax"].results)  # (turns, environments)
        for name, found in times.items():
            regret, each = np.array(found.results), found.each(size[name] * horizon)
            beyond = (regret - base[:, : size[name]]).ravel()
            same = name != "fedbandit_jax" and (rule, name) != ("epsilon-greedy", "SMPyBandits")
            law = {"regret": regret.mean().item(), "error": stats.sem(regret.ravel())}
            law["z"] = beyond.mean().item() / stats.sem(beyond) if same else None
            cost = {"ns": 1e9 * np.median(each.wall), "processor_ns": 1e9 * np.median(each.processors)}
            rows.append({"rule": rule, "library": name, "environments": size[name], **cost, **law})
    return rows


def main(json: measure.Flag = False, smoke: measure.Flag = False, jax_bandits: str = "") -> None:
    """Compare the libraries, and print a table or JSON; `smoke` plays tiny sizes, `jax_bandits` is a checkout."""
    sys.path.extend(filter(None, [jax_bandits]))
    why, (horizon, turns, most) = missing(), (64, 2, 4) if smoke else (4096, 3, 1024)
    libraries = [name for name in PLAY if name not in why]
    title = f"16 Bernoulli arms, T = {horizon:,}; ns: of a round of one environment, medians of {turns} turns"
    versions = [f"{name} {importlib.metadata.version(name)}" for name in libraries if name in LOOPS]
    rows = measured(libraries, horizon, turns, most)
    measure.output("\n".join([title, *versions, *why.values()]), rows, {}, json=json)
    measure.check_laws(rows)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
