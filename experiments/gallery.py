"""Writes experiments/figures/README.md: every picture with its command and its caption.

python experiments/gallery.py
"""

import ast
import re
from pathlib import Path

from curves import HERE, head

FIGURES = HERE / "figures"
FAMILIES = {  # how names begin -> what these are; the empty word fits what is left
    "zhou2024": "Zhou & Chowdhury (2024)",
    "dubey2020": "Dubey & Pentland (2020)",
    "chowdhury2023": "Chowdhury & Zhou (2023)",
    "liu2022": "Liu et al. (2022)",
    "": "Beyond the papers",
}
OF_COMMANDS = {  # pictures that no script here draws: their commands and what is drawn
    "simulate_sphere": (
        "fedbandit simulate",
        "Regret per round of all silos on the synthetic instance of Zhou & Chowdhury (2024): random features on a unit "
        "sphere, rewards 0 or 1, and silos that synchronise every 25 rounds. As printed is Algorithm 1 with the noise "
        "of Theorem 5.1. Tree noise is Algorithm 8, which acts on synchronised sums only, with just the noise that it "
        "needs. BLT is buffered linear Toeplitz noise, with confidence widths from its law. With secagg silos add "
        "noise together. Greedy play has batches that grow. Solid curves in colour are certified at the same budget, "
        "the dashed one is weaker than stated, and black and grey ones are not private.",
    ),
    "simulate_arms": (
        "fedbandit simulate arms",
        "Regret of successive elimination of arms by who adds the noise and what ε promises, on easy instances of "
        "Chowdhury & Zhou (2023). CDP-SE lies under Dist-DP-SE: the noise of a sum has the same law, whoever adds it. "
        "SE is not private; AdaC-UCB, which asks users about one arm at a time, lies below it all the same. "
        "The ε are different promises: pure, Renyi and concentrated DP.",
    ),
}
START = """\
# Gallery

Every picture with its command, and what the paper claims, at which size, and whether it was seen. The numbers are in
the CSV of the same name, but for the few that a command draws. `python experiments/gallery.py` writes this page,
`python experiments/all.py` draws everything again. [The cookbook](../../docs/cookbook.md#draw-a-figure-of-a-paper)
explains the options.

"ours" has agents that act on released statistics only, exact noise and rewards in [0, 1]: certified. "authors" has
the authors' noise and constants, agents that learn inside the batch and Gaussian rewards: no privacy claim, as
scripts print. In the figures of Chowdhury & Zhou (2023) "theory" has the paper's confidence radii, "exact" ours, from
the law of the noise; DP-SE keeps its own. CDP-SE lies near Dist-DP-SE: the noise of a sum has the same law, whoever
adds it. Where MSLR-WEB10K is asked for and no copy was at hand, digits stand in for it.
"""


def page() -> str:
    """Returns the text of the page."""
    parts, left = [START], sorted(path.stem for path in FIGURES.glob("*.png"))
    for prefix, title in FAMILIES.items():
        names = [name for name in left if name.startswith(prefix)]
        left = [name for name in left if name not in names]
        parts += [f"## {title}\n", *map(_entry, names)]
    return "\n".join(parts)


def _entry(name: str) -> str:
    csv = FIGURES / f"{name}.csv"
    command, caption = head(csv) if csv.exists() else (OF_COMMANDS[name][0], [])
    script = HERE / Path(command.split()[1]).name if csv.exists() else None
    about = ast.get_docstring(ast.parse(script.read_text())) if script else OF_COMMANDS[name][1]
    words = " ".join((about or "").split("\n\n")[0].split())
    lines = [
        f"### {name.replace('_', ' ')}",
        "",
        words,
        "",
        f"![{words.rstrip('.')}]({name}.png)",
        "",
        f"`{command}`",
        "",
    ]
    plain = [re.sub(r"\$(.*?)\$", lambda formula: re.sub("[{}]", "", formula[1]), line) for line in caption]
    return "\n".join([*lines, *(f"{line}\n" for line in plain)])


if __name__ == "__main__":
    (FIGURES / "README.md").write_text(page(), encoding="utf-8")
