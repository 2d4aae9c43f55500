"""The pages of the repository: their links, the site made from them, the sections they cite."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
BUILD: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "build.py"), run_name="docs_build")
PROTOCOL = ROOT / "docs" / "protocol.md"
# What is not the project's own text: environments, caches, what is built.
_FOREIGN = {".git", ".venv", "site", "build", "dist", "node_modules"}
_CITATION = re.compile(
    r"(?:§+ ?|\b(?:sections?|protocol) )(?P<numbers>\d+(?:(?:, | and | to |\u2013|-)\d+)*)",
    re.IGNORECASE,
)


def own_files(*patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        for file in sorted(ROOT.rglob(pattern)):
            folders = file.relative_to(ROOT).parts[:-1]
            if not any(part in _FOREIGN or part.endswith("_cache") for part in folders):
                yield file


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Exit codes", "exit-codes"),
        ("What a body can do, and what it cannot", "what-a-body-can-do-and-what-it-cannot"),
        ("In LakeFS: perago gc", "in-lakefs-perago-gc"),
        ("A worker's own server", "a-workers-own-server"),
        ("7. Fences", "7-fences"),
        ("a -- b", "a----b"),
        ("PRG-101 DefinitionError", "prg-101-definitionerror"),
        ("Größe: groß", "größe-groß"),
        ("snake_case stays", "snake_case-stays"),
    ],
)
def test_a_heading_has_the_anchor_that_github_gives_it(heading: str, anchor: str) -> None:
    assert BUILD["anchor_of"](heading) == anchor


def test_a_repeated_heading_has_a_numbered_anchor(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n## Same\n\n## `Same`\n\n## Same\n", encoding="utf-8")
    assert list(BUILD["Page"].read(page).anchors()) == ["a", "same", "same-1", "same-2"]


def test_a_link_to_a_missing_file_or_anchor_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n[x](gone.md) [y](#b) [z](other.md#c) [fine](#a) [out](https://example.com/#q)\n"
        "[fine](other.md#d)\n\n```\n[code](is-no-link.md)\n```\n",
        encoding="utf-8",
    )
    (tmp_path / "other.md").write_text("# D\n", encoding="utf-8")
    assert BUILD["find_broken_links"]([page], tmp_path) == [
        "page.md: broken link gone.md",
        "page.md: broken anchor #b",
        "page.md: broken anchor other.md#c",
    ]


def test_a_picture_is_copied_and_a_missing_one_is_found(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("# A\n\n![one](plots/one.svg) ![two](plots/two.svg)\n", encoding="utf-8")
    (page.parent / "plots").mkdir()
    (page.parent / "plots" / "one.svg").write_text("<svg/>", encoding="utf-8")
    assert BUILD["find_broken_links"]([page], tmp_path) == [
        "docs/page.md: missing picture plots/two.svg"
    ]
    site = tmp_path / "site"
    BUILD["build"](site, tmp_path)
    assert (site / "docs" / "plots" / "one.svg").read_text(encoding="utf-8") == "<svg/>"


def test_every_relative_link_and_anchor_of_every_page_exists() -> None:
    pages = list(own_files("*.md"))
    assert ROOT / "README.md" in pages
    assert PROTOCOL in pages
    assert BUILD["find_broken_links"](pages, ROOT) == []


def test_the_navigation_has_every_page_once() -> None:
    named = [ROOT / name for names in BUILD["SECTIONS"].values() for name in names]
    # The records of decisions have an index of their own.
    pages = {
        page
        for page in BUILD["find_pages"]()
        if page.parent.name != "decisions" or page.name == "README.md"
    }
    assert len(named) == len(set(named))
    assert set(named) == pages, "docs/navigation.toml"


def test_every_figure_on_the_page_about_scaling_is_on_the_page_that_it_names() -> None:
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (.+) \| (.+) \| \[\w+\]\(([\w.-]+)(?:#[\w-]+)?\) \|$", text, re.MULTILINE
    )
    assert len(rows) > 10
    for what, figures, page in rows:
        measured = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for figure in figures.split(", "):
            number = figure.removesuffix(" MB")
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.,]\d)", measured), (
                what,
                figure,
            )


def test_every_trial_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "trials.md").read_text(encoding="utf-8")
    named = re.findall(r"\| `([\w/]+\.py)::(test_\w+)` \|$", text, re.MULTILINE)
    assert len(named) == text.count("\n| ") - text.count("\n| tried |") > 50
    for file, name in named:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert f"def {name}(" in source, f"{file}::{name}"


class _Html(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and (link := values.get("href")):
            self.links.append(link)
        if name := values.get("id"):
            self.ids.add(name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build: Callable[[Path], int] = BUILD["build"]
    built = tmp_path_factory.mktemp("docs") / "site"
    assert build(built) == len(list(BUILD["find_pages"]()))
    return built


def test_every_link_of_the_built_site_leads_somewhere_in_it(site: Path) -> None:
    pages = {file: _Html(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}
    broken = []
    for file, page in pages.items():
        for link in page.links:
            if "://" in link or link.startswith("mailto:"):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = pages.get((file.parent / path).resolve() if path else file)
            if target is None or (anchor and anchor not in target.ids):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert broken == []
    assert sum(len(page.links) for page in pages.values()) > 2 * len(pages)


def index_entries(site: Path) -> list[dict[str, str]]:
    script = (site / "search-index.js").read_text(encoding="utf-8")
    entries: list[dict[str, str]] = json.loads(
        script.removeprefix("window.peragoIndex = ").rstrip().removesuffix(";")
    )
    return entries


def test_the_search_knows_every_heading_of_the_built_site_and_its_text(site: Path) -> None:
    entries = index_entries(site)
    for entry in entries:
        file, _, anchor = entry["address"].partition("#")
        assert f' id="{anchor}"' in (site / file).read_text(encoding="utf-8")
    headings = [
        text for page in BUILD["find_pages"]() for _, text in BUILD["Page"].read(page).headings()
    ]
    assert len(entries) == len(headings)
    (found,) = [it for it in entries if it["heading"] == "PRG-102 ConfigurationError"]
    assert found["page"] == "Errors"
    assert "perago config show" in found["text"]


def test_the_site_needs_nothing_from_elsewhere_and_colours_code(site: Path) -> None:
    page = (site / "docs" / "how-to" / "deploy.html").read_text(encoding="utf-8")
    loaded = re.findall(r'<(?:script src|link rel="stylesheet" href)="(.*?)"', page)
    assert loaded == ["../../style.css", "../../search.js"]
    assert all((site / "docs" / "how-to" / name).exists() for name in loaded)
    script = (site / "search.js").read_text(encoding="utf-8")
    assert "http" not in script + (site / "style.css").read_text(encoding="utf-8")
    task = (site / "docs" / "writing-tasks.html").read_text(encoding="utf-8")
    assert '<span class="k">class</span>' in task
    module = (site / "examples" / "daily_revenue.py.html").read_text(encoding="utf-8")
    assert '<span class="k">def</span>' in module


def protocol_sections() -> set[str]:
    """The numbers of the protocol's headings."""
    text = PROTOCOL.read_text(encoding="utf-8")
    return set(re.findall(r"^#+ (\d+)\. ", text, re.MULTILINE))


def cited_sections(text: str) -> Iterator[str]:
    for found in _CITATION.finditer(text):
        yield from re.findall(r"\d+", found["numbers"])


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ('"""Section 7: both fences."""', ["7"]),
        ("sections 7 and 8 of the protocol", ["7", "8"]),
        ("the publish table (protocol, section 7)", ["7"]),
        ("see protocol 9, and § 11", ["9", "11"]),
        ("§§ 4, 5", ["4", "5"]),
        ("sections 0\u201311", ["0", "11"]),
        ("the protocol has no number here; a section neither; 7 files", []),
    ],
)
def test_a_citation_of_a_section_is_recognised(text: str, numbers: list[str]) -> None:
    assert list(cited_sections(text)) == numbers


def test_the_protocol_has_its_numbered_sections_in_order() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    assert re.findall(r"^## (\d+)\. ", text, re.MULTILINE) == [str(n) for n in range(12)]


def test_every_section_cited_anywhere_exists_in_the_protocol() -> None:
    sections = protocol_sections()
    cited = 0
    wrong = []
    for file in own_files("*.py", "*.md"):
        if file == Path(__file__):  # the examples above are no citations
            continue
        for number in cited_sections(file.read_text(encoding="utf-8")):
            cited += 1
            if number not in sections:
                wrong.append(f"{file.relative_to(ROOT)}: section {number}")
    assert wrong == []
    assert cited > 10


# Prose says who: a worker, the server, a person, no other attempt.
_RIDDLES = re.compile(
    r"\b(?:who(?:so|m)?ever|(?:some|any|every|no)body|(?:some|any|every)one|no[ -]one)\b",
    re.IGNORECASE,
)


def test_no_text_leaves_open_who_does_something() -> None:
    prose = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
    files = {
        *(ROOT / name for name in prose),
        *(
            file
            for folder in ("src", "docs")
            for file in (ROOT / folder).rglob("*")
            if file.suffix in {".py", ".md", ".html", ".js"}
        ),
    }
    assert len(files) > 200
    found = [
        f"{file.relative_to(ROOT)}:{number}: {riddle.group()}"
        for file in sorted(files)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        for riddle in _RIDDLES.finditer(line)
    ]
    assert found == []


def test_the_rule_about_prose_finds_what_it_is_about() -> None:
    text = "Whoever asks, nobody answers: someone is no one, but the body of a task is known."
    assert _RIDDLES.findall(text) == ["Whoever", "nobody", "someone", "no one"]
