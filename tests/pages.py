"""What tests of pages share: what a parser finds in a page, and a browser that opens it."""

import contextlib
import html.parser
import re
import shutil
import urllib.parse
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

VOID = {"meta", "br", "img", "link", "input", "hr"}
EVIL = "<script>alert(1)</script>&\"'"


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
IN_A_CONTAINER = ["--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage"]
# contrast (WCAG 2) of every element that has words of its own, with the nearest background behind it
CONTRASTS = """() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    const own = getComputedStyle(element).backgroundColor;
    return (parts(own)[3] ?? 1) > 0 ? own : behind(element.parentElement);
  };
  const worded = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll("body, body *")].filter(e => worded(e) && e.checkVisibility()).map(element => {
    const both = [light(getComputedStyle(element).color), light(behind(element))].sort((a, b) => b - a);
    return [`${element.tagName} ${element.className}`, (both[0] + 0.05) / (both[1] + 0.05)];
  });
}"""


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


class Read(html.parser.HTMLParser):
    """What a browser finds: elements with attributes, visible words, tables; elements must be closed in their order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words, self.tables, self.code = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert len(attrs) == len(dict(attrs)), f"{tag} has an attribute twice"
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("style", "script"):
            self.code.append((self.open[-1], data))
            return
        self.words.append(data)
        if self.open and ("td" in self.open or "th" in self.open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return "".join(self.words)

    def all(self, name):
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def is_drawing(address):
    """Whether an address is an SVG image that stands in it, and that names parts of its own only."""
    kind, _, data = address.partition(",")
    drawn = urllib.parse.unquote(data)
    root = ET.fromstring(drawn)
    names = re.findall(r'(?:href="|url\()(?!#)', drawn)
    return kind == "data:image/svg+xml" and root.tag.endswith("}svg") and not names


def opens_offline(page):
    """Asserts that a page asks for nothing outside, and that no label in it, which may be EVIL, became code."""
    ids, raw = page.all("id"), str([*page.elements, *page.code])
    for image in page.all("src"):
        assert is_drawing(image)
        raw = raw.replace(image, "")
    assert not re.search(r"http|@import|url\(", raw)
    assert len(ids) == len(set(ids))
    assert set(page.all("href")) <= {f"#{name}" for name in ids}
    assert [kind for kind, _ in page.code] == ["style", "script"]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.text.count(EVIL) >= 3
