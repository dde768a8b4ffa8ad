"""Notebooks of the tutorials, for Jupyter and the like: `python docs/notebooks.py FOLDER` writes them.

The pages are the source, and their examples are tested. A notebook has the same text and code, and no output.
"""

import doctest
import json
import re
import sys
from pathlib import Path

TUTORIALS = ("quickstart", "policy", "your-data", "cookbook")
PYTHON = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"\s*# doctest: .*")
IMAGE, LINK = re.compile(r"^!\[.*\n", re.MULTILINE), re.compile(r"\[([^\]]*)\]\((?!http)[^)]*\)")


def notebook(page: str) -> dict:
    """Returns the notebook of a page in MyST Markdown: its text, and a cell for each example that shows a value."""
    cells = []
    for at, part in enumerate(PYTHON.split(page)):
        if at % 2 == 0:  # text; a notebook elsewhere has neither the pictures nor the other pages
            cells += [("markdown", LINK.sub(r"\1", IMAGE.sub("", part)).strip())]
            continue
        source = ""
        for example in doctest.DocTestParser().get_examples(part):
            source += DIRECTIVE.sub("\n", example.source)
            if example.want:
                cells, source = [*cells, ("code", source.strip())], ""
        cells += [("code", source.strip())]
    code = {"execution_count": None, "outputs": []}
    return {
        "cells": [
            {"cell_type": kind, "id": f"c{k}", "metadata": {}, "source": text, **(code if kind == "code" else {})}
            for k, (kind, text) in enumerate(cells)
            if text
        ],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write(folder: Path) -> None:
    """Writes the notebooks of all tutorials into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TUTORIALS:
        page = Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8")
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook(page), indent=1, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    write(Path(sys.argv[1]))
