"""What tests of pages share: what a browser would find in a page, and where a browser may be."""

import base64
import html.parser
import re
import xml.etree.ElementTree as ET

VOID = {"meta", "br", "img", "link", "input", "hr"}
EVIL = "<script>alert(1)</script>&\"'"


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
IN_A_CONTAINER = ["--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage"]


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
    drawn = base64.b64decode(data).decode()
    root = ET.fromstring(drawn)
    names = re.findall(r'(?:href="|url\()(?!#)', drawn)
    return kind == "data:image/svg+xml;base64" and root.tag.endswith("}svg") and not names
