"""Imports go down the list of layers, never up, and siblings of one layer do not import each other."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "fedbandit_jax"
LAYERS = [  # top to bottom
    {"__main__"},
    {"cli"},
    {"benchmark"},
    {"audits", "planning"},
    {"engine"},
    {"report"},
    {"data"},
    {"algos", "envs"},
    {"interfaces", "networks", "schedules"},
    {"linalg", "privacy"},
    {"certificate", "status"},
    {"core"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def layer(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path):
    """Modules of this package that a file imports, anywhere in it."""
    return imported_by(ast.parse(path.read_text()))


def imported_by(tree):
    """As lists of names below the package, empty for the package itself, which is above all of its layers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fedbandit_jax":
            for alias in node.names:
                yield [*node.module.split("."), alias.name][1:]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "fedbandit_jax":
                    yield alias.name.split(".")[1:]


def modules(tree):
    """What a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")


FILES = [p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path):
    here = layer(path)
    for parts in imported(path):
        there = parts[0] if parts and parts[0] in RANK else "the package"
        if there == "the package":
            assert here == "cli", f"{path.name} imports fedbandit_jax itself"
        elif there != here:
            assert RANK[there] > RANK[here], f"{path.name} imports {'.'.join(parts)}"


def test_what_an_import_is():
    code = "import fedbandit_jax\nimport fedbandit_jax.core.struct\nfrom fedbandit_jax import envs\nimport fedbandit"
    assert list(imported_by(ast.parse(code))) == [[], ["core", "struct"], ["envs"]]


def test_the_engine_knows_no_algorithm():
    for path in (PACKAGE / "engine").rglob("*.py"):
        assert not [parts for parts in imported(path) if parts[:1] in (["algos"], ["envs"])], path


ALGOS = [  # top to bottom, folders of algos/; what lies beside them are recipes
    {"papers"},
    {"recipes"},
    {"clusters", "grouping"},
    {"pooling"},
    {"loops"},
    {"policies"},
]
FLOOR = {name: floor for floor, names in enumerate(ALGOS) for name in names}


def test_algorithms_import_downwards():
    """Papers name recipes, recipes bind loops, loops run policies; families do not import each other."""
    for path in (PACKAGE / "algos").rglob("*.py"):
        if path == PACKAGE / "algos" / "__init__.py":
            continue
        here = path.relative_to(PACKAGE / "algos").parts[0].removesuffix(".py")
        here = here if here in FLOOR else "recipes"
        for parts in imported(path):
            if parts[0] == "algos" and len(parts) > 2:
                there = parts[1] if parts[1] in FLOOR else "recipes"
                assert there == here or FLOOR[there] > FLOOR[here], f"{path} imports {'.'.join(parts)}"


def test_siblings_do_not_import_each_other():
    """What environments share lies in files whose names begin with an underscore."""
    files = [p for p in (PACKAGE / "envs").glob("*.py") if p.stem != "__init__"]
    public = {p.stem for p in files if not p.stem.startswith("_")}
    for path in files:
        used = {parts[1] for parts in imported(path) if parts[0] == "envs" and len(parts) > 1}
        assert not (used & public - {path.stem}), path


def test_files_import_each_other_in_one_direction():
    """Inside a room, too, there is a file to begin with, also for who only wants a type."""
    names = {".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): p for p in FILES}
    uses = {}
    for name, path in names.items():
        named = (".".join(parts) for parts in imported(path))
        uses[name] = {found if found in names else found.rpartition(".")[0] for found in named} & set(names)
    list(graphlib.TopologicalSorter(uses).static_order())  # raises CycleError


def trees():
    """Every file of the package, parsed."""
    for path in FILES:
        yield path, ast.parse(path.read_text())


def test_one_class_of_a_name():
    """So that a name in a traceback, in a saved configuration or in a sentence means one thing."""
    where = {}
    for path, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    assert not {name: paths for name, paths in where.items() if len(paths) > 1}


PRODUCTS = {"matmul", "einsum", "dot", "vdot", "inner", "tensordot", "vecdot", "matvec", "vecmat", "dot_general"}
PRODUCTS |= {"batch_matmul", "multi_dot", "convolve", "correlate"}
ON_THE_HOST = ("audits/", "data/", "privacy/accounting/", "privacy/releases/")  # where `@` is NumPy's


def products(tree, host):
    """Lines of matrix products that do not say precision="highest": a GPU would round their factors to 10 bits."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and not host:
            yield node.lineno
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PRODUCTS):
            continue
        module = ast.unparse(node.func.value)
        traced = module in ("jnp", "lax", "jax.lax") if host else module not in ("np", "numpy", "ridge", "self")
        precise = any(k.arg == "precision" and ast.unparse(k.value) == "'highest'" for k in node.keywords)
        if traced and not precise:
            yield node.lineno


def test_products_are_precise():
    """On the host write np.matmul where jax is imported as well, so that it is seen whose product it is."""
    found = []
    for path, tree in trees():
        if {parts[0] for parts in modules(tree)} & {"jax"}:
            here = path.relative_to(PACKAGE).as_posix()
            found += [f"{here}:{line}" for line in products(tree, here.startswith(ON_THE_HOST))]
    assert not found, found


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("a @ b", True),
        ("jnp.matmul(a, b)", True),
        ("jnp.einsum('ij,j->i', a, b, precision='default')", True),
        ("x.dot(y)", True),
        ("lax.dot_general(a, b, dims)", True),
        ("jnp.matmul(a, b, precision='highest')", False),
        ("np.matmul(a, b)", False),
        ("ridge.inner(a, b)", False),
        ("a * b", False),
    ],
)
def test_what_a_product_is(code, wrong):
    assert bool(list(products(ast.parse(code), host=False))) == wrong


def test_one_place_asks_for_the_machine():
    for path, tree in trees():
        asked = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "default_backend"]
        assert not asked or path == PACKAGE / "core" / "backend.py", f"{path}:{asked}: ask core.backend.on_cpu"


def test_plotting_and_results_need_no_jax():
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import fedbandit_jax.report.result, fedbandit_jax.report.plotting, fedbandit_jax.certificate\n"
        "import fedbandit_jax as fb; fb.Result"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_is_free():
    code = "import sys, fedbandit_jax; assert 'jax' not in sys.modules and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_type_checkers_see_the_public_names():
    """Whatever loads on first use is declared under its own name, and nothing else is."""
    import fedbandit_jax

    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    declared = next(node for node in tree.body if isinstance(node, ast.If))
    names = [name for node in declared.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert [name.name for name in names] == [name.asname for name in names]
    assert {name.name for name in names} == set(fedbandit_jax.__all__)


def test_files_that_docstrings_name_exist():
    """Of names in backticks such as `core.choose`; what follows the file may be a name in it."""
    known = {".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for path in FILES}
    folders = "|".join(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
    for path in FILES:
        for name in re.findall(rf"`(?:fedbandit_jax\.)?((?:{folders})\.[a-z_.]+)`", path.read_text()):
            assert name in known or name.rpartition(".")[0] in known, f"{path}: there is no {name}"
