"""Settings of the site: sphinx-build -W docs site. Pages load nothing from a network."""

import inspect
import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import fedbandit_jax as fb

sys.path.insert(0, str(Path(__file__).parent))
import notebooks

project, author, release = "fedbandit_jax", "The fedbandit_jax authors", fb.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = ["*.md", "docs/**.md", "docs/api.rst", "bench/*.md", "experiments/figures/README.md"]
root_doc, language = "docs/index", "en"
myst_heading_anchors = 4
myst_enable_extensions, myst_dmath_allow_digits = ["dollarmath"], False
html_math_renderer = "mathml"
html_theme, html_title = "sphinx_book_theme", "fedbandit_jax"
html_static_path, html_css_files = ["_static"], ["narrow.css"]
html_theme_options = {"show_toc_level": 2, "use_download_button": False, "navbar_persistent": []}
html_copy_source = html_show_sourcelink = False
default_role = "code"
autodoc_typehints, autodoc_member_order, autodoc_class_signature = "none", "bysource", "mixed"
napoleon_numpy_docstring, napoleon_use_param, napoleon_use_rtype = False, False, False

VERDICTS = {"Holds.": "holds", "Holds in part.": "in-part", "Does not hold.": "fails"}  # of claims -> their colour
AS_IS = re.compile(r"``.*?``|`[^`]*`")  # code in a line of a docstring


def _escaped(line: str) -> str:
    """A line of a docstring in which stars, bars and names that end in an underscore are what they are."""
    parts, at = [], 0
    for code in AS_IS.finditer(line):
        parts += [_text(line[at : code.start()]), code[0], "\\ "]
        at = code.end()
    return "".join([*parts, _text(line[at:])])


def _text(words: str) -> str:
    return re.sub(r"(\w)_(?!\w)", r"\1\\_", re.sub(r"([*|])", r"\\\1", words))


def plain(app, what, name, obj, options, lines):
    """Our docstrings are read as text with code in it, and examples as they stand."""
    inside, found = False, []
    for line in lines:
        if line.lstrip().startswith(">>>"):
            inside = True
        elif not line.strip():
            inside = False
        found.append(line if inside else _escaped(line))
    lines[:] = found


def members() -> str:
    """reStructuredText that documents every public name, room by room."""
    rooms = [("fb", fb), *((f"fb.{name}", getattr(fb, name)) for name in fb._MODULES)]
    text = []
    for title, module in rooms:
        package = hasattr(module, "__path__")  # a file has what it defines itself
        text += [title, "=" * len(title), "", inspect.cleandoc(_text((module.__doc__ or "").split("\n\n")[0])), ""]
        for name in sorted(vars(module) if module is not fb else fb._NAMES, key=str.lower):
            one, path = getattr(module, name), f"{module.__name__}.{name}"
            mine = str(getattr(one, "__module__", "")).startswith("fedbandit_jax" if package else module.__name__)
            if name.isupper() and isinstance(one, dict):
                text += [f".. py:data:: {path}", "", "   By name: " + ", ".join(f"`{key}`" for key in one), ""]
            elif mine and not name.startswith("_") and (inspect.isclass(one) or inspect.isfunction(one)):
                kind = "class" if inspect.isclass(one) else "function"
                text += [f".. auto{kind}:: {path}", *(["   :members:"] if kind == "class" else []), ""]
    return "\n".join(text)


def coloured(app, doctree):
    """Marks the verdicts on claims of papers, which the style sheet colours."""
    for strong in doctree.findall(nodes.strong):
        strong["classes"] += [VERDICTS[word] for word in [strong.astext()] if word in VERDICTS]


def formula(self, node):
    """Writes MathML, which browsers show without a script."""
    block = isinstance(node, nodes.math_block)
    self.body.append(tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def with_links(app, name, source):
    """Links to what the site alone has: the notebooks of the tutorials."""
    if (page := Path(name).name) in notebooks.TUTORIALS:
        link = f'<p><a href="{page}.ipynb" download>Download this page as a notebook</a></p>'
        source[0] = source[0].replace("\n", f"\n\n{link}\n", 1)


def finished(app, exception):
    """Adds the notebooks, and leads from the root to the first page."""
    if exception is None:
        notebooks.write(Path(app.outdir) / "docs")
        (Path(app.outdir) / "index.html").write_text('<meta http-equiv="refresh" content="0; url=docs/index.html">')


def _is_field(member):
    """Returns whether this is a field of a NamedTuple, which the class's docstring describes."""
    return type(member).__name__ == "_tuplegetter"


def setup(app):
    """Writes the reference, and reads pages from the root, where README and bench are."""
    app.srcdir = app.confdir.parent
    target = Path(__file__).with_name("api.rst")
    target.write_text(f"API reference\n#############\n\n{members()}\n", encoding="utf-8")
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("autodoc-process-docstring", plain, priority=100)
    app.connect("autodoc-skip-member", lambda app, what, name, member, *_: _is_field(member) or None)
    app.connect("doctree-read", coloured)
    app.connect("source-read", with_links)
    app.connect("build-finished", finished)
