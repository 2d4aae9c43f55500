"""``make docs``: render README and docs/*.md to site/, and fail on a link that leads nowhere.

A page generator would bring forty packages for a dozen pages; markdown-it-py is here anyway.
"""

from __future__ import annotations

import re
import shutil
import sys
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
SITE = ROOT / "site"
LINK = re.compile(r'href="([^"#]+)(#[^"]*)?"')
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 1rem }}
pre {{ overflow-x: auto; padding: .8rem; border: 1px solid #8884; border-radius: 4px; }}
table {{ border-collapse: collapse; }} td, th {{ border: 1px solid #8886; padding: .2rem .6rem; }}
</style>
<nav>{nav}</nav>
<main>{body}</main>
</html>
"""


def main() -> int:
    sources = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    sources += sorted((ROOT / "docs").glob("*.md"))
    shutil.rmtree(SITE, ignore_errors=True)
    (SITE / "docs").mkdir(parents=True)
    broken = [problem for source in sources for problem in render(source, sources)]
    for problem in broken:
        print(problem, file=sys.stderr)
    print(f"{len(sources)} pages in {SITE.relative_to(ROOT)}/")
    return 1 if broken else 0


def render(source: Path, sources: list[Path]) -> list[str]:
    """Write one page; the links in it that lead nowhere."""
    target = target_of(source)
    html = MarkdownIt("commonmark").enable("table").render(source.read_text(encoding="utf-8"))
    links = [match[1] for match in LINK.finditer(html) if "://" not in match[1]]
    broken = [link for link in links if not (source.parent / link).exists()]
    html = re.sub(r'href="([^":]+)\.md(#[^"]*)?"', r'href="\1.html\2"', html)
    up = "../" if source.parent.name == "docs" else ""
    nav = " · ".join(
        f'<a href="{up}{target_of(item).relative_to(SITE).as_posix()}">{escape(item.stem)}</a>'
        for item in sources
    )
    target.write_text(PAGE.format(title=escape(source.stem), nav=nav, body=html), encoding="utf-8")
    return [f"{source.relative_to(ROOT)}: broken link {link}" for link in broken]


def target_of(source: Path) -> Path:
    return (SITE / source.relative_to(ROOT)).with_suffix(".html")


if __name__ == "__main__":
    sys.exit(main())
