"""The page about results: it opens offline, hides nothing, and says what the files say; its tables can be sorted."""

import subprocess
import sys

import numpy as np
import pytest
from handmade import grid, made, swept
from helpers import refused
from pages import CONTRASTS, EVIL, Read, browser, opens_offline

import fedbandit_jax as fb
from fedbandit_jax.certificate import CLAIMS
from fedbandit_jax.cli import main
from fedbandit_jax.engine import store as engine_store
from fedbandit_jax.report import folders as found
from fedbandit_jax.report import html, page
from fedbandit_jax.report.plotting import figure


def report(tmp_path, *paths, title="A title"):
    page.write(found.find(paths), tmp_path / "report.html", title=title)
    return Read((tmp_path / "report.html").read_text())


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(figure, "_write", lambda figure, kind, file: file.write(b"<svg/>"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two results, one with labels that would be code, and a file that is none."""
    folder = tmp_path_factory.mktemp("results")
    grid().save(folder / "grid")
    told = {"fedbandit_jax": "0.1", "command": f"fedbandit simulate {EVIL}"}
    made(seeds=3, horizon=4, labels=("plain", EVIL), provenance=told).save(folder / "evil")
    (folder / "deeper").mkdir()
    (folder / "deeper" / "<b>.npz").write_bytes(b"nothing")
    return folder


@pytest.fixture(scope="module")
def read(folder, tmp_path_factory):
    return report(tmp_path_factory.mktemp("page"), folder, title=EVIL)


def test_opens_offline(read):
    """Every reference finds its place on the page, once, and two results fit into a megabyte."""
    opens_offline(read)
    assert sum(map(len, read.all("src"))) < 8e5
    assert set(read.all("href")) == {f"#{name}" for name in read.all("id")} != set()
    assert read.text.count(EVIL) >= 5  # title, heading, table, certificate, command


def test_tables_have_the_numbers_of_the_summary(read, folder):
    result = fb.Result.load(folder / "grid")
    (table,) = [table for table in read.tables if "epsilon asked" in table[0]]
    head = table[0]
    assert head[:4] == ["label", "algorithm", "epsilon asked", "regret at T"]
    rows = {row[0]: dict(zip(head, row)) for row in table[1:]}
    assert list(rows) == list(result.labels)
    for label in result:
        finals, row = result[label].regret[:, -1], rows[label]
        assert float(row["regret at T"]) == pytest.approx(finals.mean(), abs=0.05)
        assert float(row["s.e."]) == pytest.approx(finals.std(ddof=1) / np.sqrt(3), abs=0.05)
        claim = result[label].certificate.claim
        assert row["claim"] == (claim if result[label].certificate.epsilon else "not private")
    assert [row["epsilon asked"] for row in rows.values()] == ["-", "2", "0.5"]
    kinds = {a["class"] for tag, a in read.elements if tag == "td" and a.get("class", "").startswith("claim")}
    assert kinds == {"claim certified"}  # who asks for no privacy is not marked


def test_certificates_figures_and_origin_are_there(read, folder):
    for path in ("grid", "evil"):
        result = fb.Result.load(folder / path)
        for label in result:
            assert str(result[label].certificate) in read.text
        assert str(folder / path) in read.text
    captions = ["cumulative regret", "time-average regret", "regret against epsilon", "privacy-regret frontier"]
    assert all(caption in read.text for caption in captions)
    assert sum(tag == "img" for tag, _ in read.elements) == sum(tag == "figcaption" for tag, _ in read.elements) == 9
    (table,) = [table for table in read.tables if table[0] == ["file", "reason"]]
    assert [row[0] for row in table[1:]] == [str(folder / "deeper" / "<b>.npz")]  # refused


def test_labels_that_are_algorithms_are_one_column(undrawn, tmp_path):
    """And more curves than a figure can hold are not drawn."""
    names = [f"a{i}" for i in range(page.CURVES + 1)]
    swept(dict.fromkeys(names, 1.0)).save(tmp_path / "run")
    read = report(tmp_path, tmp_path / "run.npz")
    assert ["label", "regret at T"] in [table[0][:2] for table in read.tables]
    assert "cumulative regret" not in read.text


def test_pieces_of_a_store_are_left_out(tmp_path):
    piece = tmp_path / ("0" * 32) / "seeds_0-2.npz"
    grid().save(piece)
    with refused("paths"):
        found.find([tmp_path])
    grid().save(tmp_path / "whole")
    assert [one.path.name for one in found.find([tmp_path]).sections] == ["whole.npz"]
    assert found.STORED.pattern.endswith(f"/{engine_store.FILE.pattern}")


def test_the_command(undrawn, tmp_path, capsys):
    out, run = tmp_path / "new" / "page.html", tmp_path / "run.npz"
    swept({"one": 1.0}).save(run)
    assert main(["report", str(run), "--out", str(out), "--title", "Mine"]) == 0
    assert "1 results, 3 runs, 0 files refused" in capsys.readouterr().out
    assert "<h1>Mine</h1>" in out.read_text()
    (tmp_path / "cut.npz").write_bytes(run.read_bytes()[:500])
    assert main(["report", str(tmp_path), "--out", str(out)]) == 1
    assert str(tmp_path / "cut.npz") in capsys.readouterr().err


def test_a_report_for_reviewers(folder, tmp_path, capsys):
    """Of every label, with what was run, by which versions and when; the ending of the file is its format."""
    result = fb.Result.load(folder / "grid")
    for ending, kind in (("md", "markdown"), ("html", "html"), ("tex", "latex")):
        out = tmp_path / f"privacy.{ending}"
        assert main(["show", str(folder / "grid.npz"), "--report", str(out)]) == 0
        assert str(out) in capsys.readouterr().out
        assert out.read_text() == result.report(kind)
    text = result.report()
    for label in result:
        assert f"## {label}\n" in text
    assert text.count("| instance | 3 agents") == text.count("| date | ") == text.count("sha256") == len(result)
    assert main(["show", str(folder / "grid.npz"), "--report", "privacy.pdf"]) == 2
    assert "--report must" in capsys.readouterr().err


def test_wrong_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.png").write_text("no result")
    for words in ("missing", ".", "text.png", "text.png --out ."):
        assert main(["report", *words.split()]) == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith("fedbandit: --out must" if "--out" in words else "fedbandit: paths must")
        assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_needs_no_jax(folder, tmp_path):
    code = "import sys; sys.modules['jax'] = None\nfrom fedbandit_jax.cli import main\n"
    code += f"main(['show', {str(folder / 'evil.npz')!r}])\n"
    code += f"main(['report', {str(folder / 'evil.npz')!r}, '--out', {str(tmp_path / 'page.html')!r}])"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_sorts_in_a_browser(folder, tmp_path):
    """A click sorts numbers by size, upwards and downwards, with what has none last; nothing else is loaded."""
    report(tmp_path, folder)
    with browser() as (shown, asked):
        address = (tmp_path / "report.html").as_uri()
        shown.goto(address)
        table = shown.locator("table.sortable").filter(has_text="epsilon asked")
        orders = [[cell.strip() for cell in table.locator("tbody td:nth-child(3)").all_text_contents()]]
        for _ in range(2):
            table.get_by_role("button", name="epsilon asked").click()
            orders.append(table.locator("tbody td:nth-child(3)").all_text_contents())
        sizes = [drawing.bounding_box() for drawing in shown.locator("img").all()]
        heading = shown.locator("h1").inner_text()
    assert orders == [["-", "2", "0.5"], ["0.5", "2", "-"], ["2", "0.5", "-"]]
    assert asked == [address]
    assert heading == "A title"
    assert all(size["width"] > 200 and size["height"] > 200 for size in sizes)
    assert len(sizes) == 9


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_can_be_read_by_day_and_by_night(folder, tmp_path, scheme):
    """Words stand out as WCAG asks at level AA, claims at level AAA, and a page that should be dark is dark."""
    report(tmp_path, folder)
    claims = html.table([("claim", "epsilon"), *((claim, "1") for claim in CLAIMS)], "")
    html.write(tmp_path / "claims.html", "claims", [claims])
    found = []
    with browser(color_scheme=scheme) as (shown, _):
        for name in ("report.html", "claims.html"):
            shown.goto((tmp_path / name).as_uri())
            found += shown.evaluate(CONTRASTS)
        paper = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert {name: contrast for name, contrast in found if contrast < (7 if "claim" in name else 4.5)} == {}
    assert {f"TD claim {claim}" for claim in CLAIMS} <= {name for name, _ in found}
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
