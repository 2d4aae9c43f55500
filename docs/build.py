"""``make docs``: render every page of the repository to site/, and fail on a broken link.

A page generator would bring forty packages for a few dozen pages; markdown-it-py is here anyway.
Headings get the anchors that GitHub gives them, so a link works in both places. A source file or
a folder that a page links to is rendered too: the site has no other copy of it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent
_PARSER = MarkdownIt("commonmark").enable("table")
_NOT_IN_AN_ANCHOR = re.compile(r"[^\w\- ]")
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 1rem }}
pre {{ overflow-x: auto; padding: .8rem; border: 1px solid #8884; border-radius: 4px; }}
img {{ max-width: 100%; }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid #8886; padding: .2rem .6rem; }}
</style>
<nav>{nav}</nav>
<main>{body}</main>
</html>
"""


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
    pages = [Page.read(source) for source in find_pages(root)]
    linked: set[Path] = set()
    for page in pages:
        for token, link in page.link_tokens():
            target = page.target_of(link)
            if target.suffix != ".md":
                linked.update([target, *target.glob("*.py")] if target.is_dir() else [target])
            token.attrs["href"] = _address(page, target, link)
        for anchor, token in page.anchors().items():
            token.attrs["id"] = anchor
        body = _PARSER.renderer.render(page.tokens, _PARSER.options, {})
        _write(site, root, page.source, page.title, body, pages)
        for _, picture in page.images():
            _copy(site, root, picture)
    for target in sorted(linked):
        _write(site, root, target, target.name, _listing(target), pages)
    return len(pages)


def _address(page: Page, target: Path, link: Link) -> str:
    anchor = f"#{link.anchor}" if link.anchor else ""
    if link.file is None:
        return anchor
    relative = os.path.relpath(_rendered(target), page.source.parent)
    return Path(relative).as_posix() + anchor


def _rendered(source: Path) -> Path:
    """Where the page of a file or a folder lies, beside its source."""
    if source.is_dir():
        return source / "index.html"
    return source.with_suffix(".html") if source.suffix == ".md" else Path(f"{source}.html")


def _listing(target: Path) -> str:
    """A folder as a list of its modules, or a file as its text."""
    if target.is_dir():
        names = sorted(file.name for file in target.glob("*.py"))
        items = "".join(f'<li><a href="{name}.html">{name}</a></li>' for name in map(escape, names))
        return f"<h1>{escape(target.name)}</h1><ul>{items}</ul>"
    text = escape(target.read_text(encoding="utf-8"))
    return f"<h1>{escape(target.name)}</h1><pre><code>{text}</code></pre>"


def _write(
    site: Path, root: Path, source: Path, title: str, body: str, pages: Iterable[Page]
) -> None:
    target = site / _rendered(source).relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    links = []
    for page in pages:
        # The records of decisions have an index of their own.
        if page.source.parent.name != "decisions" or page.source.stem == "README":
            there = os.path.relpath(_rendered(page.source), _rendered(source).parent)
            links.append(f'<a href="{Path(there).as_posix()}">{escape(page.title)}</a>')
    html = _PAGE.format(title=escape(title), nav=" · ".join(links), body=body)
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
