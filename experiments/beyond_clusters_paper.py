"""Asks what private clustering is worth on the paper's own instance, at small delta, and beside tuned baselines.

python experiments/beyond_clusters_paper.py [--smoke | --full]

`beyond_clusters.py` has random seats, clusters at least 0.5 apart and delta = 0.1. Here is the instance of Liu et al.
(2022): 40 users in 4 clusters, both with consecutive numbers, and no least distance. (a) The mixture at epsilon = 1 and
5 against delta, 0.1 of which may publish four of forty users. (b) The paper's algorithms, none private, against the
factor on their widths, which is 1 in theory; ours play greedily. The key is one that nothing was chosen on.
"""

import jax
import matplotlib.pyplot as plt
import tyro
from beyond_clusters import MIXTURE, streams
from common import LiuOptions, Says, caption, save
from curves import Curve, pick, verdict

import fedbandit_jax as fb

DELTAS, EPSILONS, WIDTHS = (1e-6, 1e-3, 0.1), (1.0, 5.0), (0.05, 0.2, 1.0)
BASELINES = ("FCLUB-DC", "SCLUB", "LinUCB")


def measure(options: LiuOptions) -> list[Curve]:
    """Returns final regrets of all seeds, against delta and against the factor on widths."""
    deltas, widths = DELTAS[-options.pick(1, 3, 3) :], WIDTHS[-options.pick(1, 3, 3) :]
    algos = {f"{e:g} {d:g}": streams(MIXTURE, e, d) for e in EPSILONS for d in deltas}
    algos |= {"mixture": streams(MIXTURE), "one model a user": streams(fb.algos.Alone())}
    for width in widths:
        every = options.methods(fb.privacy.Budget(1.0, 0.1), width)
        algos |= {f"{name} {width:g}": every[name] for name in BASELINES}
    key = jax.random.key(options.seed + 2032)
    run = {**options.run(500, 100_000, 100_000), "seeds": options.pick(2, 4, 16), "key": key}
    result = fb.sweep(options.instance(), algos, **run, store=options.store)
    claims = {name: result[name].certificate.claim for name in result}
    assert all(claims[f"{e:g} {d:g}"] == "certified" for e in EPSILONS for d in deltas)
    final = {name: result[name].regret[:, -1] for name in result}
    curves = [Curve("delta", f"mixture, ε = {e:g}", deltas, [final[f"{e:g} {d:g}"] for d in deltas]) for e in EPSILONS]
    curves += [Curve("plain", f"{name}, not private", [0], [final[name]]) for name in ("mixture", "one model a user")]
    return curves + [Curve("width", name, widths, [final[f"{name} {w:g}"] for w in widths]) for name in BASELINES]


def main(options: LiuOptions) -> None:
    curves = options.numbers("beyond_clusters_paper", lambda: measure(options))
    figure, (left, right) = plt.subplots(1, 2, figsize=(14.0, 6.6), layout="constrained", sharey=True)
    colours: dict[str, str] = dict(zip(BASELINES, ("#0072B2", "#CC79A7", "#56B4E9")))
    for one, line in zip(pick(curves, "delta"), ("-", "--")):
        left.errorbar(one.x, one.mean, one.error, fmt=f"o{line}", color="#E69F00", label=f"{one.label}, certified")
    for one, line in zip(pick(curves, "plain"), ("-", "--")):
        left.axhline(one.mean[0], color="#009E73", linestyle=line, label=one.label)
    for one, mark in zip(pick(curves, "width"), "osD"):
        right.errorbar(one.x, one.mean, one.error, fmt=f"{mark}-", color=colours[one.label], label=one.label)
        left.axhline(one.mean.min(), color=colours[one.label], linestyle=":", label=f"{one.label}, best width of (b)")
    for one in curves:
        print(
            f"{one.label}: " + ", ".join(f"{x:g}: {m:,.0f} ± {e:,.0f}" for x, m, e in zip(one.x, one.mean, one.error))
        )
    left.set(xscale="log", xlabel="δ", ylabel="regret at T", title="(a) the mixture against δ")
    right.set(xscale="log", xlabel="factor on widths", title="(b) the paper's algorithms, not private")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
        ax.set_ylim(0, None)
    seen = []
    for private in pick(curves, "delta"):
        for other in pick(curves, "width"):
            best = other.y[other.mean.argmin()]
            words = [f"δ = {d:g} {verdict(y, best)}" for d, y in zip(private.x, private.y)]
            seen.append(f"{private.label} < {other.label} at its best width: {', '.join(words)}")
    print(*seen, sep="\n")
    size = f"n=40, m=4 (consecutive seats, no least distance), L=5, K=10, d=10, T=10^5, {curves[0].n_seeds} seeds"
    figure.suptitle(f"The instance of Liu et al. (2022): {size}, ± 1 s.e.")
    claim = "certified private clustering has less regret than the paper's algorithms without privacy"
    caption(figure, "docs/beyond.md", Says("Users in clusters", claim, "an easier instance, δ = 0.1", "; ".join(seen)))
    save("beyond_clusters_paper", options, figure, curves)


if __name__ == "__main__":
    main(tyro.cli(LiuOptions, description=__doc__))
