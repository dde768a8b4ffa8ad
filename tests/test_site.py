"""The site: built without a warning, also about links; nothing is asked of a network, and telephones show it."""

import ast
import contextlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

import fedbandit_jax as fb

ROOT = Path(__file__).parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
IN_A_CONTAINER = ["--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage"]


@contextlib.contextmanager
def browser(**options):
    """A page in Chromium without a window, of this machine or of playwright, and all that it requests, without errors.

    Skips the test where there is neither.
    """
    asked, errors = [], []
    api = pytest.importorskip("playwright.sync_api", reason="NO BROWSER: no page was opened; install playwright")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        if found is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip(f"NO BROWSER: no page was opened; have one of {', '.join(BROWSERS)}")
        shown = playwright.chromium.launch(executable_path=found, args=IN_A_CONTAINER).new_page(**options)
        shown.on("request", lambda request: asked.append(request.url))
        shown.on("pageerror", lambda error: errors.append(error))
        yield shown, asked
    assert not errors


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx_book_theme", reason="NO SITE: it was not built; pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_tutorials_are_notebooks(tmp_path):
    subprocess.run([sys.executable, "docs/notebooks.py", str(tmp_path)], cwd=ROOT, check=True)
    for path in (books := [*tmp_path.glob("*.ipynb")]):
        code = [c["source"] for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
        statements = [ast.parse(source).body for source in code]  # the page's own tests run them
        page = (ROOT / "docs" / f"{path.stem}.md").read_text()
        assert sum(map(len, statements)) == len(re.findall("^>>> (?!\\.\\.\\.)", page, re.M)) > len(code) > 3
    assert len(books) == 4


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    from sphinx.util.inventory import InventoryFile

    with open(site / "objects.inv", "rb") as file:
        found = InventoryFile.load(file, "", lambda base, path: path)
    known = {name for kind, its in found.items() if kind.startswith("py:") for name in its}
    assert {f"fedbandit_jax.{name}" for name in fb._NAMES} <= known
    for module in (getattr(fb, room) for room in fb._MODULES):
        public = {name: one for name, one in vars(module).items() if not name.startswith("_")}
        home = "fedbandit_jax" if hasattr(module, "__path__") else module.__name__
        mine = {name for name, one in public.items() if str(getattr(one, "__module__", "")).startswith(home)}
        tables = {name for name, one in public.items() if name.isupper() and isinstance(one, dict)}
        wanted = {name for name in mine if inspect.isclass(public[name]) or inspect.isfunction(public[name])} | tables
        assert wanted
        assert {f"{module.__name__}.{name}" for name in wanted} <= known


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_pages_in_a_browser(site, width, scheme):
    """No page is wider than a telephone, lacks a picture or its words, or asks for anything outside; it may be dark."""
    wrong = {}
    with browser(viewport={"width": width, "height": 844}, color_scheme=scheme) as (shown, asked):
        for path in sorted({*site.rglob("*.html")} - {site / "index.html"}):  # which leads to the first page
            if "_static" in path.parts:
                continue
            shown.goto(path.as_uri())
            wide = shown.evaluate("document.documentElement.scrollWidth")
            poor = "[...document.images].filter(one => !one.naturalWidth || !one.alt.trim()).map(one => one.src)"
            empty = shown.evaluate(poor)
            paper = shown.evaluate("getComputedStyle(document.body).backgroundColor")
            dark = sum(map(int, re.findall(r"\d+", paper)[:3])) < 3 * 128
            if wide > width or empty or dark != (scheme == "dark"):
                wrong[path.name] = wide, empty, paper
    assert not wrong
    assert not [address for address in asked if urllib.parse.urlsplit(address).scheme not in ("file", "data")]
