"""Pages of docs: their lengths, tables and links, and generated parts against their sources."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.sizing import METADATA_BYTES
from prism_assets_tests.docs.generate import DOCS, generated, pages, with_part

ROOT = DOCS.parent
READABLE = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES = [*READABLE, *sorted(DOCS.glob("*/*.md"))]
_FENCED = re.compile(r"^ *(```).*?^ *```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
_LONGEST_CELL = 100


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _without_code(page: Path) -> str:
    return _FENCED.sub("", page.read_text())


def _anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", _without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _links(page: Path) -> Iterator[tuple[Path, str]]:
    for link in _LINK.findall(_without_code(page)):
        if "://" not in link:
            target, _, anchor = link.partition("#")
            yield (page.parent / target).resolve() if target else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for target, anchor in _links(page):
        assert target.exists(), f"{_name(page)} links {target}"
        if target.suffix == ".md":
            assert not anchor or anchor in _anchors(target), f"{_name(page)} links {target.name}#{anchor}"


def test_messages_and_comments_name_pages_and_headings_that_exist() -> None:
    found = subprocess.run(
        ["git", "grep", "-hoE", r"docs/[a-z-]+\.md(#[a-z-]+)?", "--", "*.py", "scripts"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for named in set(found.stdout.split()):
        path, _, anchor = named.partition("#")
        assert (ROOT / path).exists(), named
        assert not anchor or anchor in _anchors(ROOT / path), named


@pytest.mark.parametrize("page", READABLE, ids=_name)
def test_a_page_is_short_and_its_cells_hold_phrases(page: Path) -> None:
    assert page.read_text().count("\n") <= (120 if page.name == "README.md" else 400)
    rows = re.findall(r"^\|(.*)\|$", _without_code(page), re.MULTILINE)
    cells = [_LINK.sub("]", cell).strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > _LONGEST_CELL] == []


def test_all_pages_name_one_growth_of_postgresql() -> None:
    """A gigabyte for a million objects is a kilobyte for each."""
    said = [
        (page.name, float(number))
        for page in READABLE
        for number in re.findall(
            r"([\d.]+) (?:GB for a million staging objects|kB for each(?: staging object)?,? with its small object)",
            " ".join(page.read_text().split()),
        )
    ]
    assert {number * 1_000 for _, number in said} == {float(METADATA_BYTES)}
    assert {name for name, _ in said} >= {"garbage.md", "postgresql.md"}


def test_the_site_shows_every_page() -> None:
    assert sorted(pages()) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("path", [*generated()], ids=_name)
def test_generated_parts_are_current(path: Path) -> None:
    assert path.read_text() == generated()[path], "scripts/docs --pages"


def test_a_part_is_replaced_and_nothing_else() -> None:
    assert with_part("a\n<!-- x -->\nold\n<!-- /x -->\nb", "x", "new\n") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
    with pytest.raises(ValueError, match="no part x"):
        with_part("a", "x", "new")


def test_the_map_of_the_code_names_files_that_exist() -> None:
    text = (DOCS / "architecture.md").read_text()
    named = set(re.findall(r"`((?:\w+/)*\w+(?:\.py|/))`", text))
    assert len(named) > 100
    missing = {path for path in named if not any((root / path).exists() for root in (ROOT / "prism_assets", ROOT))}
    assert missing == set()


def test_the_pages_of_operators_name_every_check_and_every_sensor() -> None:
    pinned = (ROOT / "prism_assets_tests" / "defs" / "definitions.txt").read_text()
    checks = {name for line in re.findall(r"^  checks: (.+)$", pinned, re.MULTILINE) for name in line.split(", ")}
    sensors = set(re.findall(r"^sensor (\w+)$", pinned, re.MULTILINE))
    assert checks
    assert sensors
    assert checks <= _first_cells(DOCS / "operate.md")
    assert sensors <= _first_cells(DOCS / "dagster.md")


def test_the_index_of_findings_names_every_kind() -> None:
    """Kinds that only doctor finds are damage, and printed with their remedy."""
    folder = ROOT / "prism_assets" / "stages" / "findings"
    modules = [path.read_text() for path in folder.glob("*.py") if path.stem != "invariants"]
    kinds = {kind for text in modules for kind in re.findall(r'kind="(\w+)"', text)}
    assert len(kinds) > 10
    assert kinds - _first_cells(DOCS / "operate.md") == set()


def _first_cells(page: Path) -> set[str]:
    """Returns the code in the first cells of tables."""
    return {
        name for cell in re.findall(r"^\|([^|]*)\|", page.read_text(), re.M) for name in re.findall(r"`(\w+)`", cell)
    }
