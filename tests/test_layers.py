"""Imports go down the list of layers, never up, and siblings of one layer do not import each other."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import fedbandit_jax

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
ALGOS = [  # top to bottom, folders of algos/; what lies beside them are recipes
    {"papers"},
    {"arms", "clusters"},
    {"recipes"},
    {"loops"},
    {"policies"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FLOOR = {name: floor for floor, names in enumerate(ALGOS) for name in names}
TREES = {
    path.relative_to(PACKAGE): ast.parse(path.read_text())
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}
NODES = {path: [*ast.walk(tree)] for path, tree in TREES.items()}
NAMES = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in TREES}  # of modules


def imported(nodes):
    """Lists of names below the package that a file imports, empty for the package itself, which is above all layers."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fedbandit_jax":
            for alias in node.names:
                yield [*node.module.split("."), alias.name][1:]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "fedbandit_jax":
                    yield alias.name.split(".")[1:]


def test_imports_go_down():
    """Rooms, and within algos papers, recipes, loops and policies; arms and clusters do not know each other."""
    for path, nodes in NODES.items():
        room, name = path.parts[0].removesuffix(".py"), path.parts[min(1, len(path.parts) - 1)].removesuffix(".py")
        for parts in imported(nodes):
            there, inner = (*parts, "", "")[:2]
            what = f"{path} imports {'.'.join(parts)}"
            if there not in RANK:
                assert room == "cli", what
            elif there != room:
                assert RANK[there] > RANK[room], what
                assert room != "engine" or there not in ("algos", "envs"), what
            elif room == "envs" and name != "__init__":
                assert not (PACKAGE / "envs" / f"{inner}.py").exists() or inner.startswith("_") or inner == name, what
            elif room == "algos" and name != "__init__" and len(parts) > 2:
                mine, other = (one if one in FLOOR else "recipes" for one in (name, inner))
                assert mine == other or FLOOR[other] > FLOOR[mine], what


def test_files_import_each_other_in_one_direction():
    """Inside a room, too, there is a file to begin with, also for who only wants a type."""
    uses = {}
    for name, path in NAMES.items():
        named = (".".join(parts) for parts in imported(NODES[path]))
        uses[name] = {found if found in NAMES else found.rpartition(".")[0] for found in named} & set(NAMES)
    list(graphlib.TopologicalSorter(uses).static_order())  # raises CycleError


def test_one_class_of_a_name():
    """So that a name in a traceback, in a saved configuration or in a sentence means one thing."""
    where = {}
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(path)
    assert not {name: paths for name, paths in where.items() if len(paths) > 1}


PRODUCTS = {"matmul", "einsum", "dot", "vdot", "inner", "tensordot", "vecdot", "matvec", "vecmat", "dot_general"}
PRODUCTS |= {"batch_matmul", "multi_dot", "convolve", "correlate"}
ON_THE_HOST = ("audits/", "data/", "privacy/accounting/", "privacy/releases/")  # where `@` is NumPy's


def products(nodes, host):
    """Lines of matrix products that do not say precision="highest": a GPU would round their factors to 10 bits."""
    for node in nodes:
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
    for path, nodes in NODES.items():
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        if "jax" in {name.partition(".")[0] for name in names}:
            found += [f"{path}:{line}" for line in products(nodes, path.as_posix().startswith(ON_THE_HOST))]
    assert not found, found


def test_what_a_product_is():
    wrong = "a @ b", "jnp.einsum('ij,j->i', a, b, precision='default')", "x.dot(y)"
    fine = "jnp.matmul(a, b, precision='highest')", "np.matmul(a, b)", "ridge.inner(a, b)"
    assert [bool([*products(ast.walk(ast.parse(code)), host=False)]) for code in wrong + fine] == [True] * 3 + [
        False
    ] * 3


def test_one_place_asks_for_the_machine():
    for path, nodes in NODES.items():
        asked = [n.lineno for n in nodes if isinstance(n, ast.Attribute) and n.attr == "default_backend"]
        assert not asked or path == Path("core/backend.py"), f"{path}:{asked}: ask core.backend.on_cpu"


def test_importing_the_package_loads_nothing():
    """That files and pictures need no jax is asked in report/test_review.py."""
    code = "import sys, fedbandit_jax; assert not {'jax', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_type_checkers_see_the_public_names():
    """Whatever loads on first use is declared under its own name, and nothing else is."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    declared = next(node for node in tree.body if isinstance(node, ast.If))
    names = [name for node in declared.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert [name.name for name in names] == [name.asname for name in names]
    assert {name.name for name in names} == set(fedbandit_jax.__all__)


def test_files_that_docstrings_name_exist():
    """Of names in backticks such as `core.choose`; what follows the file may be a name in it."""
    folders = "|".join(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
    for path in TREES:
        for name in re.findall(rf"`(?:fedbandit_jax\.)?((?:{folders})\.[a-z_.]+)`", (PACKAGE / path).read_text()):
            assert name in NAMES or name.rpartition(".")[0] in NAMES, f"{path}: there is no {name}"
