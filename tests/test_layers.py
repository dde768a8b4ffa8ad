"""Imports go down the list of layers, never up, and siblings of one layer do not import each other."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fedbandit_jax"
LAYERS = [  # top to bottom
    {"__main__"},
    {"cli"},
    {"audits"},
    {"engine"},
    {"report"},
    {"algos", "envs"},
    {"data", "interfaces", "networks", "schedules"},
    {"privacy"},
    {"certificate"},
    {"core"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def layer(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path):
    """Modules of this package that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedbandit_jax"):
            for alias in node.names:
                yield [*node.module.split("."), alias.name][1:]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("fedbandit_jax."):
                    yield alias.name.split(".")[1:]


FILES = [p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path):
    here = layer(path)
    for parts in imported(path):
        if parts[0] in RANK and parts[0] != here:
            assert RANK[parts[0]] > RANK[here], f"{path.name} imports {'.'.join(parts)}"


@pytest.mark.parametrize("group", ["algos", "envs"])
def test_siblings_do_not_import_each_other(group):
    public = {p.stem for p in (PACKAGE / group).glob("*.py") if not p.stem.startswith("_")}
    for path in (PACKAGE / group).glob("*.py"):
        if path.stem == "__init__":
            continue
        used = {parts[1] for parts in imported(path) if parts[0] == group and len(parts) > 1}
        assert not (used & public - {path.stem}), path


def test_plotting_and_results_need_no_jax():
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import fedbandit_jax.report.results, fedbandit_jax.report.plotting, fedbandit_jax.certificate\n"
        "import fedbandit_jax as fb; fb.Result"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_is_free():
    code = "import sys, fedbandit_jax; assert 'jax' not in sys.modules and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
