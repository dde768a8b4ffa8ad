"""The site: built without a warning, every link leads somewhere, nothing is asked of a network, telephones show it."""

import ast
import html.parser
import inspect
import json
import re
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest
from pages import browser

import fedbandit_jax as fb

ROOT = Path(__file__).parent.parent


class Links(html.parser.HTMLParser):
    """What a page refers to, what it can be referred to by, and pictures without words."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.ids, self.silent = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        its = dict(attrs)
        self.ids.add(its.get("id") or its.get("name"))
        if tag == "a" and its.get("href"):
            self.links.append(its["href"])
        if tag in ("script", "img", "iframe", "source") and its.get("src"):
            self.loaded.append(its["src"])
        if tag == "link" and its.get("rel") != "canonical":
            self.loaded.append(its["href"])
        if tag == "img" and not its.get("alt", "").strip():
            self.silent.append(its["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx_book_theme", reason="NO SITE: it was not built; pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_link_leads_somewhere(site):
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 30
    lost, outside = [], []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                outside += [link] * (link in page.loaded and parts.scheme != "data")
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            there = pages[target].ids if target in pages else {parts.fragment}
            if not target.exists() or (parts.fragment and urllib.parse.unquote(parts.fragment) not in there):
                lost.append((path.name, link))
    assert not lost
    assert not outside


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
    ids = Links((site / "docs" / "api.html").read_text()).ids
    assert {f"fedbandit_jax.{name}" for name in fb._NAMES} <= ids
    for module in (getattr(fb, room) for room in fb._MODULES):
        public = {name: one for name, one in vars(module).items() if not name.startswith("_")}
        home = "fedbandit_jax" if hasattr(module, "__path__") else module.__name__
        mine = {name for name, one in public.items() if str(getattr(one, "__module__", "")).startswith(home)}
        tables = {name for name, one in public.items() if name.isupper() and isinstance(one, dict)}
        wanted = {name for name in mine if inspect.isclass(public[name]) or inspect.isfunction(public[name])} | tables
        assert wanted
        assert {f"{module.__name__}.{name}" for name in wanted} <= ids


@pytest.mark.slow
def test_pictures_have_words(site):
    pages = {path.name: Links(path.read_text()).silent for path in (site / "docs").glob("*.html")}
    assert not {name: silent for name, silent in pages.items() if silent}


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1200, "light")])
def test_pages_in_a_browser(site, width, scheme):
    """No page is wider than a telephone, lacks a picture or asks for anything outside; at night it is dark."""
    wrong = {}
    with browser(viewport={"width": width, "height": 844}, color_scheme=scheme) as (shown, asked):
        for path in sorted({*site.rglob("*.html")} - {site / "index.html"}):  # which leads to the first page
            if "_static" in path.parts:
                continue
            shown.goto(path.as_uri())
            wide = shown.evaluate("document.documentElement.scrollWidth")
            empty = shown.evaluate("[...document.images].filter(one => !one.naturalWidth).map(one => one.src)")
            paper = shown.evaluate("getComputedStyle(document.body).backgroundColor")
            dark = sum(map(int, re.findall(r"\d+", paper)[:3])) < 3 * 128
            if wide > width or empty or dark != (scheme == "dark"):
                wrong[path.name] = wide, empty, paper
    assert not wrong
    assert not [address for address in asked if urllib.parse.urlsplit(address).scheme not in ("file", "data")]
