"""The pages of the repository: their links, the site made from them, the sections they cite."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from markdown_it import MarkdownIt

from support.browsers import needs_chromium, opened_browser

ROOT = Path(__file__).parents[2]
HOOKS: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "hooks.py"), run_name="docs_hooks")
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
# A form that GitHub fills pull requests with, without links.
NO_PAGE = ROOT / ".github" / "pull_request_template.md"
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
    assert HOOKS["Anchors"]()(heading) == anchor


def build(site: Path, root: Path = ROOT) -> list[str]:
    """Build a site as `make docs` does; what was wrong, nothing if the build ended well."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    problems = re.findall(r"^(?:WARNING|ERROR) +- +(.*)", done.stderr, re.MULTILINE)
    assert (done.returncode == 0) == (not problems), done.stderr
    return problems


def write_repository(root: Path, **pages: str) -> None:
    """A repository with the site's configuration, and pages of its own in docs/."""
    shutil.copytree(ROOT / "docs" / "assets", root / "docs" / "assets")
    shutil.copy(ROOT / "docs" / "hooks.py", root / "docs")
    for name, text in pages.items():
        (root / "docs" / f"{name}.md").write_text(text, encoding="utf-8")
    (root / "README.md").write_text("# Front\n", encoding="utf-8")
    named = ["README.md", *(f"docs/{name}.md" for name in pages if name != "unnamed")]
    text = yaml.safe_dump({**CONFIG, "nav": named})
    (root / "mkdocs.yml").write_text(text, encoding="utf-8")


def test_a_site_with_a_dead_link_anchor_or_picture_or_an_unnamed_page_is_refused(
    tmp_path: Path,
) -> None:
    write_repository(
        tmp_path,
        page="# A\n[x](gone.md) [y](#b) [z](other.md#c) [fine](#a) [out](https://example.com/#q)\n"
        "[fine](other.md#d) [stem](other) [up](../../x.md) [py](gone.py) [dir](gone) [all](..)\n"
        "\n```\n[code](is-no-link.md)\n```\n\n![one](plots/one.svg) ![two](plots/two.svg)\n"
        "[three](plots/one.svg)\n",
        other="# D\n",
        unnamed="# U\n",
    )
    (tmp_path / "docs" / "plots").mkdir()
    (tmp_path / "docs" / "plots" / "one.svg").write_text("<svg/>", encoding="utf-8")
    (unnamed, *problems) = build(tmp_path / "site", tmp_path)
    assert 'not included in the "nav"' in unnamed
    assert [re.findall(r" link '(.*?)'", problem) for problem in problems] == [
        ["gone.md"], ["other"], ["../../x.md"], ["gone.py"], ["gone"], [".."], ["plots/two.svg"],
        ["#b"], ["other.md#c"],
    ]  # fmt: skip
    picture = tmp_path / "site" / "docs" / "plots" / "one.svg"
    assert picture.read_text(encoding="utf-8") == "<svg/>"


def test_a_site_has_numbered_anchors_and_the_files_and_folders_that_pages_link_to(
    tmp_path: Path,
) -> None:
    write_repository(
        tmp_path,
        page="# A\n\n## Same\n\n## `Same`\n\n## Same\n\n[code](../src) [one](../src/a.py)\n",
        other="# Same\n\n| a | b |\n|---|---|\n| `x\\|y` | z |\n",
    )
    inner = tmp_path / "src" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "src" / "__pycache__").mkdir()
    (tmp_path / "src" / "a.py").write_text('"""A\n```\n````\n"""\nx = 1\n', encoding="utf-8")
    (tmp_path / "src" / "__init__.py").touch()
    (inner / "README.md").write_text(
        "# Inner\n\n[up](../a.py) [b](b.csv) [c](../../c.sh)\n", encoding="utf-8"
    )
    (inner / "b.csv").write_text("1,2\n", encoding="utf-8")
    (tmp_path / "c.sh").write_text("true\n", encoding="utf-8")
    site = tmp_path / "site"
    assert build(site, tmp_path) == []
    pages = {
        file.relative_to(site).as_posix(): _Html(file.read_text(encoding="utf-8"))
        for file in site.rglob("*.html")
    }
    assert set(pages) == {
        "index.html", "docs/page.html", "docs/other.html", "src/index.html", "src/a.py.html",
        "src/__init__.py.html",
        "src/inner/index.html", "src/inner/b.csv.html", "c.sh.html",
    }  # fmt: skip
    assert {"a", "same", "same-1", "same-2"} <= pages["docs/page.html"].ids
    assert "same-1" not in pages["docs/other.html"].ids
    assert {"../src/index.html", "../src/a.py.html"} <= set(pages["docs/page.html"].links)
    assert {"a.py.html", "inner/index.html"} <= set(pages["src/index.html"].links)
    assert {"../a.py.html", "b.csv.html"} <= set(pages["src/inner/index.html"].links)
    assert "__init__.py" in pages["src/index.html"].text
    assert "````" in pages["src/a.py.html"].text
    assert "x|y" in pages["docs/other.html"].text


def test_the_navigation_has_every_page_once() -> None:
    named = [
        ROOT / name for section in CONFIG["nav"] for names in section.values() for name in names
    ]
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}
    # The records of decisions have an index of their own.
    records = {page for page in pages if page.parent.name == "decisions"}
    index = ROOT / "docs" / "decisions" / "README.md"
    assert len(named) == len(set(named))
    assert set(named) == pages - records | {index}, "mkdocs.yml"


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
    """What a page links to and loads, its anchors, and what is in its article."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.elements: Counter[str] = Counter()
        self.text = ""
        self._inside = False
        self._in_permalink = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and (link := values.get("href")):
            self.links.append(link)
        if tag in {"script", "img", "iframe", "link"}:
            self.loaded += filter(None, (values.get("src"), values.get("href")))
        if name := values.get("id"):
            self.ids.add(name)
        if tag == "article":
            self._inside = True
        elif self._inside:
            self._in_permalink = values.get("class") == "headerlink"
            self.elements[tag] += not self._in_permalink

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._inside = False
        self._in_permalink = False

    def handle_data(self, data: str) -> None:
        if self._inside and not self._in_permalink:
            self.text += data


def rendered(page: Path) -> Path:
    """Where the site has a page."""
    name = "index.html" if page.name == "README.md" else f"{page.stem}.html"
    return page.relative_to(ROOT).with_name(name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the repository: built without a dead link, anchor or picture."""
    built = tmp_path_factory.mktemp("docs") / "site"
    assert build(built) == []
    return built


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Html]:
    return {
        file.relative_to(site): _Html(file.read_text(encoding="utf-8"))
        for file in site.rglob("*.html")
    }


def test_the_site_has_every_page_of_the_repository(site: Path, pages: dict[Path, _Html]) -> None:
    written = list(own_files("*.md"))
    assert {ROOT / "README.md", PROTOCOL, ROOT / "examples/pandas_function/README.md"} <= set(
        written
    )
    missing = [page for page in written if rendered(page) not in pages]
    assert missing == [NO_PAGE]
    assert "](" not in NO_PAGE.read_text(encoding="utf-8")
    # And nothing of docs/ that is neither a page nor shown on one.
    files = {file.name for file in (site / "docs").rglob("*.*") if file.suffix != ".html"}
    assert {Path(name).suffix for name in files} == {".js", ".png", ".svg"}


def test_every_link_of_the_built_site_leads_somewhere_in_it(pages: dict[Path, _Html]) -> None:
    broken = []
    for file, page in pages.items():
        for link in page.links:
            if "://" in link or link.startswith("mailto:"):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = pages.get(Path(os.path.normpath(file.parent / path)) if path else file)
            if target is None or (anchor and anchor not in target.ids):
                broken.append(f"{file}: {link}")
    assert broken == []
    assert sum(len(page.links) for page in pages.values()) > 2 * len(pages)


def test_the_site_shows_every_page_as_github_does(pages: dict[Path, _Html]) -> None:
    """Lists and blocks that mkdocs reads otherwise than CommonMark would be torn apart on one."""
    parser = MarkdownIt("commonmark").enable("table")
    counted = {
        "h1",
        "h2",
        "h3",
        "h4",
        "ol",
        "ul",
        "li",
        "pre",
        "table",
        "tr",
        "td",
        "img",
        "strong",
    }
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        there = _Html(f"<article>{parser.render(text)}</article>")
        here = pages[rendered(page)]
        for element in counted:
            assert here.elements[element] == there.elements[element], (page.name, element)
        assert "".join(here.text.split()) == "".join(there.text.split()), page.name


def index_entries(site: Path) -> list[dict[str, str]]:
    script = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    entries: list[dict[str, str]] = json.loads(script.removeprefix("var __index = "))["docs"]
    return entries


def test_the_search_knows_every_heading_of_the_built_site_and_its_text(
    site: Path, pages: dict[Path, _Html]
) -> None:
    entries = index_entries(site)
    for entry in entries:
        file, _, anchor = entry["location"].partition("#")
        assert not anchor or anchor in pages[Path(file)].ids
    written = {rendered(page) for page in own_files("*.md") if page != NO_PAGE}
    headings = sum(
        pages[file].elements[level] for file in written for level in ("h1", "h2", "h3", "h4")
    )
    found = [entry["location"] for entry in entries]
    assert len(found) == len(set(found)) == headings
    assert {Path(location.partition("#")[0]) for location in found} == written
    (error,) = [entry for entry in entries if entry["title"] == "PRG-102 ConfigurationError"]
    assert error["location"] == "docs/errors.html#prg-102-configurationerror"
    assert "perago config show" in error["text"]


def test_the_site_needs_nothing_from_elsewhere_and_colours_code(
    site: Path, pages: dict[Path, _Html]
) -> None:
    for file, page in pages.items():
        assert page.loaded
        missing = [name for name in page.loaded if not (site / file.parent / name).is_file()]
        assert missing == [], file
    styles = [file.read_text(encoding="utf-8") for file in site.rglob("*.css")]
    assert styles
    assert not any(re.search(r"url\(\W*(https?:)?//|@import", style) for style in styles)
    task = (site / "docs" / "writing-tasks.html").read_text(encoding="utf-8")
    assert '<span class="k">class</span>' in task
    module = (site / "examples" / "daily_revenue.py.html").read_text(encoding="utf-8")
    assert '<span class="k">def</span>' in module


@pytest.mark.browser
@needs_chromium
def test_the_search_of_the_site_works_from_a_disk_and_nothing_is_fetched(site: Path) -> None:
    asked: list[str] = []
    problems: list[str] = []
    with opened_browser() as browser:
        page = browser.new_page(viewport={"width": 375, "height": 760})
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        for name in ("index.html", "docs/cli-options.html", "docs/protocol.html"):
            page.goto((site / name).as_uri())
            overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(overflow) <= 0, name
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_role("textbox", name="Search").press_sequentially("ConfigurationError")
        page.locator(".md-search-result__item a", has_text="PRG-102").first.click()
        page.wait_for_url("**/docs/errors.html*")
    assert problems == []
    assert len(asked) > 10
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}


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
