"""``make docs``: render every page of the repository to site/, and fail on a broken link.

A page generator would bring forty packages for a few dozen pages; markdown-it-py is here anyway,
and Pygments comes with rich. The site works from a disk: no server, no internet. Headings get the
anchors that GitHub gives them, so a link works in both places. A source file or a folder that a
page links to is rendered too: the site has no other copy of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, find_lexer_class_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = Path(__file__).parent.parent
THEME = ROOT / "docs" / "theme"
_NOT_IN_AN_ANCHOR = re.compile(r"[^\w\- ]")

# Section by section, the pages as paths from the root.
SECTIONS: dict[str, list[str]] = tomllib.loads(
    (ROOT / "docs" / "navigation.toml").read_text(encoding="utf-8")
)
_PAGE = """<!doctype html>
<html lang="en" data-root="{root}">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Perago</title>
<link rel="stylesheet" href="{root}style.css">
</head>
<body>
<header>
<a class="skip" href="#content">To the content</a>
<label>Search (press /)
<input id="search" type="search" autocomplete="off" spellcheck="false"></label>
<ul id="found" aria-live="polite"></ul>
<nav aria-label="Pages">{nav}</nav>
</header>
<main id="content">
{body}
</main>
<script src="{root}search.js"></script>
</body>
</html>
"""


def _highlighted(code: str, language: str, _attributes: str) -> str:
    """Colour the code of a fence; one without a language, or with an unknown one, stays plain."""
    try:
        lexer = find_lexer_class_by_name(language)() if language else TextLexer()
    except ClassNotFound:
        lexer = TextLexer()
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))


_PARSER = MarkdownIt("commonmark", {"highlight": _highlighted}).enable("table")


@dataclass(frozen=True, slots=True)
class Link:
    """A relative link of a page: the file it names (None: the page itself) and the anchor."""

    file: str | None
    anchor: str | None

    @classmethod
    def of(cls, address: str) -> Link | None:
        """Parse an address; None when it leads out of the repository (it has a scheme)."""
        if re.match(r"[a-z][a-z0-9+.-]*:|//", address, re.IGNORECASE):
            return None
        file, _, anchor = address.partition("#")
        return cls(unquote(file) or None, unquote(anchor) or None)


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file, parsed."""

    source: Path
    tokens: list[Token]

    @classmethod
    def read(cls, source: Path) -> Page:
        return cls(source, _PARSER.parse(source.read_text(encoding="utf-8")))

    @property
    def title(self) -> str:
        """The text of the first heading."""
        return next((text for _, text in self.headings()), self.source.stem)

    def headings(self) -> Iterator[tuple[Token, str]]:
        """Each opening heading token with the heading's plain text."""
        for token, inline in zip(self.tokens, self.tokens[1:], strict=False):
            if token.type == "heading_open":
                kept = [it.content for it in inline.children or () if it.type != "image"]
                yield token, "".join(kept)

    def anchors(self) -> dict[str, Token]:
        """The anchors of the headings, by GitHub's rule; a repeated one gets a number."""
        found: dict[str, Token] = {}
        for token, text in self.headings():
            base = anchor = anchor_of(text)
            count = 0
            while anchor in found:
                count += 1
                anchor = f"{base}-{count}"
            found[anchor] = token
        return found

    def parts(self) -> Iterator[tuple[str, str, str]]:
        """Each heading with its anchor and the text below it, for the search."""
        found: list[tuple[str, str, list[str]]] = []
        anchors = iter(self.anchors())
        for token, before in zip(self.tokens, [None, *self.tokens], strict=False):
            if before is not None and before.type == "heading_open":
                found.append((_plain(token), next(anchors), []))
            elif found and token.type in {"fence", "code_block"}:
                found[-1][2].extend(token.content.split())
            elif found and token.type == "inline":
                found[-1][2].extend(_plain(token).split())
        for heading, anchor, words in found:
            yield heading, anchor, " ".join(words)

    def link_tokens(self) -> Iterator[tuple[Token, Link]]:
        """Every relative link of the page."""
        for token in self.tokens:
            for child in token.children or ():
                if child.type == "link_open":
                    link = Link.of(str(child.attrs["href"]))
                    if link is not None:
                        yield child, link

    def images(self) -> Iterator[tuple[str, Path]]:
        """Every picture of the repository that the page shows: its address and its file."""
        for token in self.tokens:
            for child in token.children or ():
                if child.type == "image":
                    address = str(child.attrs["src"])
                    link = Link.of(address)
                    if link is not None:
                        yield address, self.target_of(link)

    def target_of(self, link: Link) -> Path:
        """The file or folder that a link names."""
        named = self.source if link.file is None else self.source.parent / link.file
        return Path(os.path.normpath(named))


def _plain(inline: Token) -> str:
    kinds = {"text", "code_inline", "softbreak"}
    return "".join(it.content or " " for it in inline.children or () if it.type in kinds)


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return _NOT_IN_AN_ANCHOR.sub("", heading.strip().lower()).replace(" ", "-")


def find_pages(root: Path = ROOT) -> list[Path]:
    """The Markdown files that the site has: those at the root and all below docs/."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def find_broken_links(sources: Iterable[Path], root: Path = ROOT) -> list[str]:
    """Every relative link whose file or anchor does not exist, each with its page."""
    pages = {source: Page.read(source) for source in sources}
    broken = []
    for page in pages.values():
        place = page.source.relative_to(root)
        for token, link in page.link_tokens():
            address, target = token.attrs["href"], page.target_of(link)
            if not target.exists() or not target.is_relative_to(root):
                broken.append(f"{place}: broken link {address}")
            elif link.anchor and target.suffix == ".md":
                aimed = pages.get(target) or Page.read(target)
                if link.anchor not in aimed.anchors():
                    broken.append(f"{place}: broken anchor {address}")
        for address, target in page.images():
            if not target.is_file() or not target.is_relative_to(root):
                broken.append(f"{place}: missing picture {address}")
    return broken


def build(site: Path, root: Path = ROOT) -> int:
    """Render the site into a folder, which is replaced; the number of pages."""
    shutil.rmtree(site, ignore_errors=True)
    pages = {source: Page.read(source) for source in find_pages(root)}
    titles = {source: page.title for source, page in pages.items()}
    linked: set[Path] = set()
    entries: list[dict[str, str]] = []
    for page in pages.values():
        entries += _index_entries(page, root)
        for token, link in page.link_tokens():
            target = page.target_of(link)
            if target.suffix != ".md":
                linked.update([target, *_files_in(target)])
            token.attrs["href"] = _address(page, target, link)
        for anchor, token in page.anchors().items():
            token.attrs["id"] = anchor
        body = _PARSER.renderer.render(page.tokens, _PARSER.options, {})
        _write(site, root, page.source, page.title, body, titles)
        for _, picture in page.images():
            _copy(site, root, picture)
    for target in sorted(linked):
        _write(site, root, target, target.name, _listing(target), titles)
    _write_beside(site, entries)
    return len(pages)


def _index_entries(page: Page, root: Path) -> Iterator[dict[str, str]]:
    address = _rendered(page.source).relative_to(root).as_posix()
    for heading, anchor, text in page.parts():
        place = f"{address}#{anchor}"
        yield {"page": page.title, "heading": heading, "address": place, "text": text}


def _write_beside(site: Path, entries: list[dict[str, str]]) -> None:
    """The style, the search, and a first page that leads to the README."""
    colours = []
    for style, condition in (("default", "light"), ("github-dark", "dark")):
        rules = HtmlFormatter(style=style).get_style_defs("pre")
        colours.append(f"@media (prefers-color-scheme: {condition}) {{\n{rules}\n}}\n")
    # Last, so that the background of code is that of the page.
    style = "".join(colours) + (THEME / "style.css").read_text(encoding="utf-8")
    (site / "style.css").write_text(style, encoding="utf-8")
    shutil.copyfile(THEME / "search.js", site / "search.js")
    index = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    (site / "search-index.js").write_text(f"window.peragoIndex = {index};\n", encoding="utf-8")
    (site / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Perago</title>'
        '<meta http-equiv="refresh" content="0; url=README.html">'
        '<a href="README.html">Perago</a></html>\n',
        encoding="utf-8",
    )


def _address(page: Page, target: Path, link: Link) -> str:
    anchor = f"#{link.anchor}" if link.anchor else ""
    if link.file is None:
        return anchor
    return _relative(_rendered(target), page.source.parent) + anchor


def _relative(target: Path, folder: Path) -> str:
    return Path(os.path.relpath(target, folder)).as_posix()


def _rendered(source: Path) -> Path:
    """Where the page of a file or a folder lies, beside its source."""
    if source.is_dir():
        return source / "index.html"
    return source.with_suffix(".html") if source.suffix == ".md" else Path(f"{source}.html")


def _files_in(folder: Path) -> list[Path]:
    """The files of a folder that a page links to: its modules, or all where it has none."""
    if not folder.is_dir():
        return []
    return sorted(folder.glob("*.py")) or sorted(it for it in folder.rglob("*") if it.is_file())


def _listing(target: Path) -> str:
    """A folder as a list of its files, or a file as its text."""
    if target.is_dir():
        names = [escape(file.relative_to(target).as_posix()) for file in _files_in(target)]
        items = "".join(f'<li><a href="{name}.html">{name}</a></li>' for name in names)
        return f"<h1>{escape(target.name)}</h1><ul>{items}</ul>"
    text = target.read_text(encoding="utf-8")
    try:
        lexer = get_lexer_for_filename(target.name)
    except ClassNotFound:
        lexer = TextLexer()
    code = highlight(text, lexer, HtmlFormatter(nowrap=True))
    return f"<h1>{escape(target.name)}</h1><pre><code>{code}</code></pre>"


def _navigation(source: Path, root: Path, titles: dict[Path, str]) -> str:
    """The sections with their pages; a test holds that each page is in one of them."""
    folder = _rendered(source).parent
    shown = []
    for section, names in SECTIONS.items():
        items = []
        for page in (root / name for name in names):
            if page not in titles:  # another root has other pages
                continue
            current = ' aria-current="page"' if page == source else ""
            address = _relative(_rendered(page), folder)
            items.append(f'<li><a href="{address}"{current}>{escape(titles[page])}</a></li>')
        shown.append(f"<h2>{escape(section)}</h2><ul>{''.join(items)}</ul>")
    return "".join(shown)


def _write(
    site: Path, root: Path, source: Path, title: str, body: str, titles: dict[Path, str]
) -> None:
    target = site / _rendered(source).relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    up = _relative(site, target.parent)
    html = _PAGE.format(
        title=escape(title),
        root="" if up == "." else f"{up}/",
        nav=_navigation(source, root, titles),
        body=body,
    )
    target.write_text(html, encoding="utf-8")


def _copy(site: Path, root: Path, picture: Path) -> None:
    """Put a picture where the pages, which lie as their sources do, expect it."""
    if picture.is_file():
        target = site / picture.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, target)


def main() -> int:
    """Build the site and report broken links; 1 if there are any."""
    broken = find_broken_links(find_pages())
    for problem in broken:
        print(problem, file=sys.stderr)
    site = ROOT / "site"
    print(f"{build(site)} pages in {site.relative_to(ROOT)}/")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
