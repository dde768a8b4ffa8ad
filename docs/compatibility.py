"""Writes what goes with what into docs/choosing.md: python docs/compatibility.py."""

from pathlib import Path

from fedbandit_jax.privacy import compatibility

PAGE = Path(__file__).with_name("choosing.md")
BEGIN, END = "<!-- compatibility: written by docs/compatibility.py -->\n", "<!-- end -->\n"


def page() -> str:
    """The text of docs/choosing.md with the table as it is now."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n{compatibility.table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
