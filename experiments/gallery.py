"""Writes experiments/figures/README.md: every picture with its command and its setting.

python experiments/gallery.py
"""

import re

from draw import about, experiments, head, name_of
from options import FIGURES

PAPERS = {  # how names of figures begin -> paper
    "zhou2024": "Zhou & Chowdhury (2024)",
    "leak": "Zhou & Chowdhury (2024)",
    "dubey2020": "Dubey & Pentland (2020)",
    "chowdhury2023": "Chowdhury & Zhou (2023)",
    "liu2022": "Liu et al. (2022)",
}
START = """\
# Gallery

Every picture with its command and its setting. The CSV of the same name has the numbers. The pages of the
[four papers](../../docs/reproduction.md) and of [what works](../../docs/beyond.md) say what they show.
`python experiments/gallery.py` writes this page, and `python experiments/all.py` draws everything again.
[The cookbook](../../docs/cookbook.md#draw-a-figure-of-a-paper) explains the options.

- *Ours* is certified: agents act on released statistics only, noise is exact, and rewards lie in [0, 1].
- *As authors* has the authors' noise and constants, agents that learn inside the batch, and Gaussian rewards. It has
  no privacy claim.
- *Theory* has the confidence radii of Chowdhury & Zhou (2023), and *exact* has ours, from the law of the noise.
- Digits replace MSLR-WEB10K, as we have no copy.
"""
VARIANTS = {"ours": "ours", "authors": "as authors", "theory": "radii as printed", "exact": "exact radii",
            "centroid": "centroids", "user": "users' own preferences", "0.005": "narrow widths"}  # fmt: skip
ROOT = re.compile(r"\\sqrt\{(.*?)\}")
VERB = re.compile("^(Draws|Measures|Shows|Asks|Compares|Decides|Goes beyond [^:]*:) ")


def page() -> str:
    """Returns the text of the page."""
    parts, names = [START], sorted(path.stem for path in FIGURES.glob("*.png"))
    for family in dict.fromkeys([*PAPERS.values(), ""]):
        shown = [_entry(name, family) for name in names if PAPERS.get(name.partition("_")[0], "") == family]
        parts += [f"## {family or 'Beyond the papers'}\n", *shown]
    return "\n".join(parts)


def _entry(name: str, family: str) -> str:
    command, setting = head(FIGURES / f"{name}.csv")
    words = VERB.sub("", about(experiments()[name_of(command)])).replace(f" of {family or None}", "").rstrip(".")
    variants = [VARIANTS[word] for word in name.split("_") if word in VARIANTS]
    title = words[0].upper() + words[1:] + "".join(f" ({one})" for one in variants)
    setting = ROOT.sub(r"√(\1)", setting).replace(r"\beta", "β")
    plain = re.sub(r"\$(.*?)\$", lambda formula: re.sub("[{}]", "", formula[1]), setting)
    return f"### {title}\n\n![{title}]({name}.png)\n\n{plain}\n\n`{command}`\n"


if __name__ == "__main__":
    (FIGURES / "README.md").write_text(page(), encoding="utf-8")
