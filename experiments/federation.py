"""Users who return, and federation that goes wrong: silos that drop out or lie, late rewards, a world that moves."""

import math
from functools import partial
from typing import Any

import numpy as np
from curves import CHANCE, Curve, along, claimed, final, gathered, pick, the, uniform
from drawing import Axes, Experiment, Panel, Picture, level, styled
from options import Size
from recipes import BUDGET, GREEDY, HALF, KNOWN, sharp, with_noise

import fedbandit_jax as fb
from fedbandit_jax.privacy import Users

P = fb.privacy
USERS_VISITS, REGULAR, LET_IN = (1, 4, 16, 64), 16, (1, 2, 4, 16)
USERS_LOOKS = {
    "group privacy: optimism, batches of 25": "#0072B2 - o",
    "group privacy: greedy, batches grow by 1.5": "#D55E00 - s",
    "visits in batches far apart: greedy, batches of 25, banded noise": "#009E73 - D",
    "first visit only: greedy, batches double": "#882255 - ^",
}
FEW = "c visits, one to a batch: greedy, batches double"
ONCE = list(USERS_LOOKS)[3]  # c = 1
SESSIONS = list(USERS_LOOKS)[1:2] + list(USERS_LOOKS)[3:]  # recipes where users come for some rounds in a row


def few(unit: Any, env: Any, horizon: int) -> fb.algos.Federated:
    """Returns greedy play with few contributions of a user, in batches that double, and a longer wait."""
    doubling = GREEDY.replace(schedule=fb.schedules.Geometric(2.0))
    early = with_noise(doubling, env, horizon, 1.0, P.Decaying(1.0), delta=0.1, unit=unit)
    first: int = early.schedule.first  # pyright: ignore[reportAttributeAccessIssue]
    return early.replace(first=min(2 * first, horizon))


def recipes(r: int, env: Any, horizon: int) -> dict[str, fb.algos.Federated]:
    """Returns the recipes where r visits of one user are protected together."""
    apart = Users(r, 1, max(1, horizon // 25 // (2 * r))) if r > 1 else Users()
    grows = with_noise(GREEDY, env, horizon, 1.0, P.Decaying(1.5), delta=0.1, unit=Users(r))
    banded = P.Mechanism(BUDGET, P.BandMF(min(20, horizon // 25), apart), unit=apart, statistic=HALF)
    made = (sharp(unit=Users(r)), grows, GREEDY.replace(schedule=25, privacy=banded), few(Users(), env, horizon))
    return dict(zip(USERS_LOOKS, made))


def users(options: Size) -> list[Curve]:
    """Draws the cost of protecting all visits of a user together: regret by visits, and the visits let in.

    Each user comes r times on average; all runs are certified at (1, 0.1) for one user. (a) r visits are let in, in any
    batches (group privacy) or in batches that are apart, or one visit of every user. (b) Users come for r rounds in a
    row. (c), (d) Greedy play where c of 16 visits are let in. Numbers were chosen on other seeds.
    """
    run, points = options.run(100, 2_000, 2_000, throw=True, store=options.store), []
    (n, *arms), horizon = options.shape(100, 100, 10), run["horizon"]
    new: Any = fb.envs.sphere(n, *arms, rewards="bernoulli")
    for r in options.pick((1, REGULAR), USERS_VISITS, USERS_VISITS):
        env = fb.envs.returning(new, round(horizon / r)) if r > 1 else new
        algos = recipes(r, env, horizon)
        more = {f"{c} let in": few(Users(c, 1), env, horizon) for c in LET_IN[1:] if r == REGULAR}
        result = options.sweep(env, algos | more, title=f"r = {r}", **run)
        places = [("r", label, r, result[label]) for label in algos]
        places += [("c", FEW, c, result[label]) for c, label in zip(LET_IN, [ONCE, *more]) if more]
        if r > 1:
            stay = fb.envs.returning(new, round(horizon / r), session=r)
            rows = options.sweep(stay, {name: algos[name] for name in SESSIONS}, title=f"r = {r} in a row", **run)
            places += [("r in a row", label, r, rows[label]) for label in SESSIONS]
        for panel, name, x, one in places:
            left = one.counts.get("contributions left out", np.zeros_like(one.regret))[:, -1] / (n * horizon)
            claim = f"{one.certificate.claim} {one.certificate.epsilon_exact:.2f}"
            values = {"regret": final(one), "left out": left}
            points += [(f"{what} by {panel}", name, x, y, claim) for what, y in values.items()]
    return [*gathered(points, {**USERS_LOOKS, FEW: USERS_LOOKS[ONCE]}), uniform(new, horizon, x=horizon)]


def draw_users(curves: list[Curve]) -> Picture:
    by_r, rows, chance = pick(curves, "regret by r"), pick(curves, "regret by r in a row"), the(curves, CHANCE)
    row = []
    for one in rows:  # at r = 1 both are the same
        alone = the(by_r, label=one.label)
        whole = one.but(x=np.append(1, one.x), y=np.vstack([alone.y[:1], one.y]))
        row.append(whole if alone.x[0] == 1 else one)
    log = partial(Panel, xscale="log", look=dict(markersize=6))
    visits = partial(log, xlabel="visits r of one user, all protected together", yscale="log", xticks=USERS_VISITS)
    visits = partial(visits, level=level(curves), ylabel="group regret at T")
    let_in = partial(log, xlabel=f"visits c of one user that are let in, of {REGULAR}", label="", xticks=LET_IN)
    shown = [
        visits(by_r, "users come again at random"),
        visits(row, "users come for r rounds in a row (r = 1: as in (a))"),
        let_in(pick(curves, "regret by c"), "r = 16 in (a): c visits let in, one to a batch"),
        let_in(pick(curves, "left out by c"), "the runs of (c): what is left out", yticks=(0.75, 0.8, 0.85, 0.9, 0.95)),
    ]
    shown[2].ylabel, shown[3].ylabel = "group regret at T", "share of all visits that are left out"
    shown[1].also = lambda ax: ax.set(ylim=ax.figure.axes[0].get_ylim(), xlim=ax.figure.axes[0].get_xlim())
    setting = f"""M = 100, K = 100, d = 10, T = {chance.x[0]:,.0f}. All are certified at ε = 1 and δ = 0.1 for all
        visits of one user. Mean of {curves[0].n_seeds} seeds ± one standard error. Names say first how visits are
        protected together. At c = {REGULAR} only repeated visits within a batch are left out"""
    return Picture(shown, "What it costs to protect users who return", setting, shape=(2, 2))


RATES = (0.0, 0.05, 0.1, 0.2, 0.3)
THERE = "secure aggregation with noise for f silos away, but all are there"
LATER = "secure aggregation, what is missed comes later"
LOST = "secure aggregation, what is missed is lost"
SENDERS = {"no noise": "#000000 -o", "noise of every silo": "#D55E00 -s", LATER: "#009E73 -D", LOST: "#66C5AB -v"}


def away(rate: float, silos: int) -> int:
    """Returns f: more silos are away at a time in one synchronisation of a thousand."""
    return min(silos - 1, math.ceil(silos * rate + 3 * math.sqrt(silos * rate * (1 - rate))))


def sphere(options: Size) -> fb.Environment:
    """Returns the environment whose silos drop out, or whose rewards come late."""
    return fb.envs.sphere(*options.pick((8, 4, 3), (100, 20, 10), (400, 20, 10)), rewards="bernoulli")


def dropouts(options: Size) -> list[Curve]:
    """Draws what silos that drop out cost: regret and bits against the share of silos that miss each synchronisation.

    Greedy play in batches that double, with noise on every batch. Under secure aggregation any M - f shares of noise
    suffice; f is the mean number of silos away, and three standard deviations more. An unsent sum comes with the next
    message, or is lost. In a control there is noise for f silos, and all are there. Held-out seeds.
    """
    run = options.ends(60, 2_000, 4_000, seeds=(2, 16, 16), fresh=1000)
    still, points, early = sphere(options), [], GREEDY.replace(schedule=fb.schedules.Geometric(2.0, first=5))
    for rate in options.pick(RATES[::3], RATES, RATES):
        env = fb.envs.dropout(still, rate)
        noisy = partial(with_noise, early, env, run["horizon"], 1.0, "input_perturbation")
        safe = partial(noisy, trust="secagg", dropouts=away(rate, env.spec.n_agents))
        algos = dict(zip(SENDERS, (early, noisy(resends=True), safe(resends=True), safe(resends=False))))
        result = options.sweep(env, algos, title=f"{rate:.0%} away", **run)
        there = fb.simulate(still, algos[LATER], **run)
        for name, one in [(name, result[name]) for name in SENDERS]:
            points.append(("regret", name, rate, final(one), claimed(one)))
            points.append(("bits", name, rate, one.communication["bits"][:, -1], claimed(one)))
        points.append(("regret, all there", THERE, rate, final(there), claimed(there)))
    return [*gathered(points, {**SENDERS, THERE: "#00513B -^"}), uniform(still, run["horizon"])]


def draw_dropouts(curves: list[Curve]) -> Picture:
    plain, secure = pick(curves, "regret")[:2], [*pick(curves, "regret")[2:], the(curves, "regret, all there")]
    pooled = np.mean([one.y[0] for one in secure], axis=0)  # (S,): the same algorithm thrice, at f = 0
    bits = [one.per(1e6) for one in pick(curves, "bits")]
    over = [one.but(x=one.x[1:], y=one.y[1:]).over(pooled) for one in secure]
    panel = partial(Panel, xlabel="share of silos away", spread=0.005, label="{label}: {note}", look=dict(capsize=3))
    panel = partial(panel, xlim=(-0.02, 0.32), xticks={rate: f"{100 * rate:.0f} %" for rate in RATES if rate != 0.05})
    regret = panel([*plain, *secure], "regret", ylabel="group regret at T", yscale="log", ylim=(150, 100_000))
    regret.level = level(curves)
    alone = panel(over, "secure aggregation alone", ylabel="regret over that at f = 0", ylim=(0.8, None))
    alone.also = lambda ax: ax.axhline(1, color="0.7", zorder=0)
    sent = panel(bits, "communication", ylabel="million bits that silos send", ylim=(0, None))
    n, most = curves[0].n_seeds, ", ".join(f"{away(rate, 100)}" for rate in RATES)
    setting = f"""M = 100 silos, K = 20, d = 10, T = 2,000, ε = 1, δ = 1/(10 M T). Mean of {n} seeds ± one standard
        error. f, the silos whose shares of noise may be missing, is {most} from left to right. In (c) all except
        noise of every silo are one curve"""
    return Picture([regret, alone, sent], "Secure aggregation survives silos that drop out", setting)


DELAYS, LOW = (0, 10, 50, 200), -25  # LOW: the lower end of (b)
LOSS = "uniform play, in a round"
TRUST = {"no noise": "", "noise of every silo": "silo_local", "secure aggregation": "secagg"}
LAWS = {"fixed": ("#000000 -o", "#D55E00 -s", "#009E73 -D"), "geometric": ("#888888 -^", "#F0A868 -v", "#66C5AB -<")}
STYLES = {f"{name}, {law} delays": look for law, looks in LAWS.items() for name, look in zip(TRUST, looks)}


def delays(options: Size) -> list[Curve]:
    """Draws what rewards that come late cost: regret against their delay, by its law and by who adds noise.

    Greedy play in batches that double, with noise on every batch ("input_perturbation"), on held-out seeds. The delay
    of every reward is fixed, or geometric with this mean. (a) Regret. (b) Extra regret over no delay, seed by seed, for
    each round of delay.
    """
    run = options.ends(60, 2_000, 4_000, seeds=(2, 16, 16), fresh=1000)
    delays, horizon, points = options.pick((0, 5), DELAYS, DELAYS), run["horizon"], []
    still = sphere(options)
    lost = final(fb.simulate(still, GREEDY.replace(schedule=horizon), **run)) / horizon
    for law in LAWS:
        none = {}
        for delay in delays:
            env = fb.envs.delay(still, delay, law) if delay else still
            late = GREEDY.replace(schedule=fb.schedules.Geometric(2.0, 5 + env.spec.late))
            make = partial(with_noise, late, env, horizon, release="input_perturbation")
            algos = {name: make(1.0 if trust else None, trust=trust) for name, trust in TRUST.items()}
            result = options.sweep(env, algos, title=f"{delay} rounds late, {law}", **run)
            for name in TRUST:
                regret, point = final(result[name]), (f"{name}, {law} delays", delay)
                more = regret - none.setdefault(name, regret)
                values = {"regret": regret, "more": more}
                points += [(panel, *point, y, claimed(result[name])) for panel, y in values.items()]
    curves = sorted(gathered(points, STYLES), key=lambda one: (list(STYLES).index(one.label), one.panel != "regret"))
    return [*curves, Curve("more", LOSS, delays, [n * lost for n in delays], "#999999 -.", "not private")]


def draw_delays(curves: list[Curve]) -> Picture:
    *more, chance = pick(curves, "more")
    each = [one.but(x=one.x[1:], y=one.y[1:]).per(one.x[1:]) for one in more]
    lost, n = chance.mean[-1] / chance.x[-1], chance.n_seeds

    def cut(ax: Axes) -> None:
        """Writes the numbers of points below the axes."""
        for i, one in enumerate(each):
            for x, (y, error) in enumerate(zip(one.mean, one.error)):
                if y - error < LOW:
                    at, words = b.aside(i, x), f"{y:.0f} ± {error:.0f}".replace("-", "−")
                    ax.plot(at, LOW + 0.8, "v", color=styled(one)[0], markersize=5)
                    ax.text(at + 0.04, LOW + 1, words, color="#555555", fontsize="small")

    late = "rounds by which rewards are late (not to scale)"
    panel = partial(Panel, xlabel=late, places=True, spread=0.03, label="{label}: {note}", look=dict(capsize=3))
    a = panel(pick(curves, "regret"), "regret by the delay", ylabel="group regret at T", yscale="log")
    b = panel(each, "what a round of delay costs", ylabel="extra regret per round of delay", ylim=(LOW, 50), also=cut)
    b.level = {f"(b): {LOSS}": lost}
    setting = f"""M = 100, K = 20, d = 10, T = 2,000, ε = 1, δ = 1/(10 M T). Mean of {n} seeds ± one standard error.
        Geometric delays have this mean. A bar that ends in a triangle is cut"""
    return Picture([a, b], "Each round of delay costs a round of uniform play", setting)


SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
SUMS = {  # rule -> its words, colour and marker
    "sum": ("sum", "#882255 o"),
    "median": ("median", "#0072B2 s"),
    "geometric_median": ("geometric median", "#D55E00 D"),
    "trimmed_mean": ("trimmed mean", "#009E73 ^"),
}
ATTACKS = {
    "sign_flip": "minus its sums",
    "collude": "as if θ* were e₁",
    "random": "random messages",
    "large": "minus 1,000 × its sums",
}
BUDGETS = {"ε = 1": 1.0, "ε = 5": 5.0, "not private": None}


def liars(options: Size) -> list[Curve]:
    """Draws the cost of Byzantine silos, by their share, their message, and the rule by which the server adds up.

    Every silo sends its private sums [W | U]; a share of the silos sends something else. The server takes the plain
    sum, or M times the median of every coordinate, the geometric median, or the mean of the middle half. Agents play
    greedily from the round on that `Federated.patient` chooses for each rule. Regret is summed over the users of all
    silos.
    """
    run = options.ends(20, 1000, 2000, seeds=(2, 16, 32), fresh=3000)
    shares = options.pick(SHARES[3:4], SHARES[1:], SHARES[1:])
    env, algos = options.sphere(100, 10, 5), {}
    early = GREEDY.replace(schedule=fb.schedules.Geometric(1.5, first=2))
    rules = options.pick(["sum", "trimmed_mean"], [*SUMS], [*SUMS])
    asked = [(e, rule) for e in BUDGETS for rule in rules]
    for e, rule in asked:
        plain = early.replace(aggregate=rule)
        algo = with_noise(plain, env, run["horizon"], BUDGETS[e], fb.privacy.Decaying(1.5))
        algos[f"{e} {rule}"] = algo.replace(liars=fb.privacy.Liars(0.0))
        algos |= {
            f"{e} {rule} {attack} {share}": algo.replace(liars=fb.privacy.Liars(share, attack))
            for attack in ATTACKS
            for share in shares
        }
    result, curves = options.sweep(env, algos, **run), []
    for e, rule in asked:
        for attack, words in ATTACKS.items():
            shown = [f"{e} {rule}", *(f"{e} {rule} {attack} {share}" for share in shares)]
            name, look = SUMS[rule]
            curves.append(along(f"{e}, {words}", name, (0.0, *shares), map(result.__getitem__, shown), look))
    return [*curves, uniform(env, run["horizon"], x=run["horizon"])]


def draw_liars(curves: list[Curve]) -> Picture:
    chance, panels = the(curves, CHANCE), []
    for e in BUDGETS:
        for words in ATTACKS.values():
            axis = "share of silos that lie" if e == "not private" else ""
            panels.append(Panel(pick(curves, f"{e}, {words}"), words, axis, level=level(curves), yscale="log"))
        panels[-len(ATTACKS)].ylabel = f"{e}\nregret of all users"
    setting = f"""Titles say what a silo that lies sends, and the legend by which rule the server adds up. M = 100,
        K = 10, d = 5, T = {chance.x[0]:,.0f}, δ = 1 / (10 M T). Private: noise of every silo, certified. Mean of
        {curves[0].n_seeds} seeds ± one standard error. Rows have scales of their own"""
    return Picture(
        panels,
        "The geometric median withstands a fifth of liars",
        setting,
        shape=(len(BUDGETS), len(ATTACKS)),
        height=5.4,
        grid=dict(sharex=True, sharey="row"),
    )


BATCH, DECAY = 25, 0.8
EPSILONS = {"no noise": None, "ε = 8": 8.0, "ε = 1": 1.0}
DECAYS = (1.0, 0.9, DECAY, 0.6, 0.4)  # 1: nothing is forgotten
COLOURS = dict(zip(EPSILONS, ("#555555", "#0072B2", "#D55E00")))
PALE = dict(zip(EPSILONS, ("#AAAAAA", "#7FB9DD", "#F0A868")))  # where nothing is forgotten
MOVES = {"jump": "-o", "slide": "-s"}
POLICIES: dict[str, fb.Policy] = {"greedy": fb.algos.Greedy(), "UCB": KNOWN, "Thompson": fb.algos.Thompson()}


def recipe(name: str, epsilon: float | None, decay: float, spec: fb.Spec, horizon: int) -> fb.algos.Federated:
    """Returns a policy that forgets with this discount, and nothing at 1; Thompson's ridge is as large as the noise."""
    memory, plain = fb.privacy.Discounted(decay) if decay < 1 else None, GREEDY.replace(schedule=BATCH)
    if epsilon is not None:
        budget = fb.privacy.Budget(epsilon, 1 / (10 * spec.n_agents * horizon))
        plain = plain.replace(privacy=fb.privacy.Mechanism(budget, memory or "blt", statistic=HALF))

    def made(policy: fb.Policy) -> fb.algos.Federated:
        return plain.replace(policy=fb.algos.Forgetting(policy=policy, memory=memory) if memory else policy)

    algo = made(POLICIES[name])
    if name != "Thompson":
        return algo
    bound: Any = algo.bind(spec, horizon)
    std = float(np.max(bound.policy.stds if memory else bound.stds))
    return made(fb.algos.Thompson(regularization=max(1.0, std * spec.dim**0.5)))


def drift(options: Size) -> list[Curve]:
    """Draws a world that changes: regret of algorithms that forget, private and not, and how much to forget.

    Half-way there is a new theta*, or theta* turns all the time, from one world to the next in half the rounds.
    Policies act in batches of 25 rounds, on sums of all batches ("blt") or on discounted ones, with noise of every silo
    at delta = 1 / (10 M T). (a) Regret in a batch. (b) Three policies. (c), (d) Against the discount. Held-out seeds.
    """
    run = options.run(100, 1_000, 2_000, seeds=(2, 16, 16), fresh=1000, stride=BATCH, store=options.store)
    m, k, d = options.pick((4, 4, 3), (50, 10, 6), (100, 20, 10))
    half, still, found = run["horizon"] // 2, fb.envs.sphere(m, k, d, rewards="bernoulli"), []
    decays = options.pick((1.0, DECAY), DECAYS, DECAYS)
    for how, style in MOVES.items():
        env = fb.envs.drift(still, when=(half,) if how == "jump" else half, how=how)
        names = list(POLICIES)[: 3 if how == "jump" and not options.smoke else 1]
        asked = [("greedy", decay) for decay in decays] + [(one, decay) for one in names[1:] for decay in (1.0, DECAY)]
        key = "{} {:g}, {}".format
        algos = {
            key(*one, noise): recipe(*one[:1], epsilon, one[1], env.spec, run["horizon"])
            for one in asked
            for noise, epsilon in EPSILONS.items()
        }
        result = options.sweep(env, algos, title=how, **run)
        steps = {label: np.diff(result[label].regret, axis=1, prepend=0) for label in result}
        whole = {label: one[:, half // BATCH if how == "jump" else 0 :].sum(1) for label, one in steps.items()}
        for noise, colour in COLOURS.items():
            make = partial(Curve, note=claimed(result[key("greedy", 1, noise)]))
            y = [whole[key("greedy", decay, noise)] for decay in decays]
            found.append(make(f"{how}, by discount", noise, decays, y, f"{colour} {style}"))
            for decay, look in ((1.0, f"{PALE[noise]} -s"), (DECAY, f"{colour} -o")):
                one = steps[key("greedy", decay, noise)]
                label = f"{noise}, " + (f"discount {decay:g}" if decay < 1 else "nothing forgotten")
                found.append(make(how, label, np.arange(1, one.shape[1] + 1) * BATCH, one.T / (m * BATCH), look))
                y = [whole[key(name, decay, noise)] for name in names]
                found.append(make(f"{how}, by policy", label, np.arange(len(names)), y, look))
    return [*found, uniform(still, 1)]


def draw_drift(curves: list[Curve]) -> Picture:
    bars, found = (pick(curves, f"jump, by {what}") for what in ("policy", "discount"))
    chance, after = the(curves, CHANCE).mean[0], "group regret after the change"
    names = dict(enumerate(list(POLICIES)[: len(bars[0].x)]))
    decay = partial(Panel, yscale="log", ylim=(400, 20_000), label="(c), (d): {label}", look=dict(capsize=3))
    decay = partial(decay, xlabel="discount of a batch; 1: nothing is forgotten")
    shown = [
        Panel(pick(curves, "jump"), "greedy, a new θ* half-way", "rounds", "regret of a user in a round", kind="lines"),
        Panel(bars, "policies, a new θ* half-way", "", after, kind="bars", spread=0.13, xticks=names),
        decay(found, "greedy, a new θ* half-way", ylabel=after),
        decay(pick(curves, "slide, by discount"), "greedy, θ* turns all the time", ylabel="group regret at T"),
    ]
    shown[0].yscale, shown[0].ylim = "log", (None, 0.8)
    for panel, rounds in zip(shown, (1 / 50, 500, 500, 1_000)):  # of all users that a panel counts
        panel.level = {CHANCE: chance * rounds}
    setting = f"""M = 50, K = 10, d = 6, T = 1,000, δ = 1/(10 M T), batches of 25 rounds. Mean of
        {curves[0].n_seeds} seeds ± one standard error. All private runs are certified. In (a) the three that forget
        nothing are one"""
    return Picture(shown, "Greedy play that forgets recovers, with noise too", setting, shape=(2, 2))


FIGURES = {
    "beyond_users": Experiment(users, draw_users),
    "beyond_dropouts": Experiment(dropouts, draw_dropouts),
    "beyond_delays": Experiment(delays, draw_delays),
    "beyond_liars": Experiment(liars, draw_liars),
    "beyond_drift": Experiment(drift, draw_drift),
}
