"""Writes experiments/figures/README.md: every picture with its command and its caption.

python experiments/gallery.py
"""

import ast
import re
from pathlib import Path

from curves import HERE, PAPERS, head, paper

FIGURES = HERE / "figures"
OF_COMMANDS = {  # pictures that no script here draws: their commands, titles and settings
    "simulate_sphere": (
        "fedbandit simulate",
        "Regret per round of all silos on the synthetic instance of Zhou & Chowdhury (2024)",
        "Random features on a unit sphere, rewards 0 or 1, and silos that synchronise every 25 rounds. *As printed* is "
        "Algorithm 1 with the noise of Theorem 5.1, and *tree noise* is Algorithm 8 with exact noise. Solid curves in "
        "colour are certified at the same budget; black and grey ones are not private.",
    ),
    "simulate_arms": (
        "fedbandit simulate arms",
        "Regret of successive elimination by trust model and notion of privacy",
        "Easy instances of Chowdhury & Zhou (2023). SE and KL-UCB are not private. The ε are different promises: pure, "
        "Renyi and concentrated DP.",
    ),
}
START = """\
# Gallery

Every picture with its command and its setting. The CSV of the same name has the numbers, and in its first lines what
was seen. The pages of the [four papers](../../docs/reproduction.md) and of [what works](../../docs/beyond.md) explain
the results. `python experiments/gallery.py` writes this page, and `python experiments/all.py` draws everything again.
[The cookbook](../../docs/cookbook.md#draw-a-figure-of-a-paper) explains the options.

- *Ours* is certified: agents act on released statistics only, noise is exact, and rewards lie in [0, 1].
- *As authors* has the authors' noise and constants, agents that learn inside the batch, and Gaussian rewards. It has
  no privacy claim.
- *Theory* has the confidence radii of Chowdhury & Zhou (2023), and *exact* has ours, from the law of the noise.
- Digits replace MSLR-WEB10K, as we have no copy.
"""
VARIANTS = {"ours": "ours", "authors": "as authors", "theory": "radii as printed", "exact": "exact radii",
            "centroid": "centroids", "user": "users' own preferences", "0.005": "narrow widths"}  # fmt: skip
VERB = re.compile("^(Draws|Measures|Shows|Asks|Compares|Decides|Goes beyond [^:]*:) ")


def page() -> str:
    """Returns the text of the page."""
    parts, names = [START], sorted(path.stem for path in FIGURES.glob("*.png"))
    for family in dict.fromkeys([*PAPERS.values(), ""]):
        shown = [_entry(name, family) for name in names if paper(name) == family]
        parts += [f"## {family or 'Beyond the papers'}\n", *shown]
    return "\n".join(parts)


def _entry(name: str, family: str) -> str:
    csv = FIGURES / f"{name}.csv"
    if csv.exists():
        command, caption = head(csv)
        about = ast.get_docstring(ast.parse((HERE / Path(command.split()[1]).name).read_text())) or ""
        words = VERB.sub("", " ".join(about.split("\n\n")[0].split())).replace(f" of {family or None}", "").rstrip(".")
        variants = [VARIANTS[word] for word in name.split("_") if word in VARIANTS]
        title = words[0].upper() + words[1:] + "".join(f" ({one})" for one in variants)
        setting = caption[0].removeprefix("Setting: ") if caption else ""
    else:
        command, title, setting = OF_COMMANDS[name]
    plain = re.sub(r"\$(.*?)\$", lambda formula: re.sub("[{}]", "", formula[1]), setting)
    return f"### {title}\n\n![{title}]({name}.png)\n\n{plain}\n\n`{command}`\n"


if __name__ == "__main__":
    (FIGURES / "README.md").write_text(page(), encoding="utf-8")
