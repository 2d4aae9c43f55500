"""What mkdocs needs to know of this repository: its files, and GitHub's anchors.

The pages are written for GitHub: they lie in docs/, at the root and beside the examples, and link
to source files and folders. So the site has the layout of the repository, with the README as its
first page. A source file or a folder that a page links to becomes a page, because the site has no
other copy of it.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from pygments.lexers import find_lexer_class_for_filename
from pymdownx.slugs import slugify

# A row of a table, and code in it.
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
_PARSER = MarkdownIt("commonmark").enable("table")


class Anchors:
    """The anchors that GitHub gives the headings of a page; a repeated one gets a number."""

    def __init__(self) -> None:
        self._slug = slugify(case="lower")
        self._seen: Counter[str] = Counter()

    def start_page(self) -> None:
        self._seen.clear()

    def __call__(self, heading: str, separator: str = "-") -> str:
        slug = str(self._slug(heading, separator))
        self._seen[slug] += 1
        number = self._seen[slug] - 1
        return f"{slug}{separator}{number}" if number else slug


class Repository(Files):
    """The files of the site by their paths in the repository.

    Of a source file or a folder, by which pages link to it, it gives the page that shows it.
    """

    def __init__(self, files: Iterable[File], shown: Mapping[str, str]) -> None:
        super().__init__(files)
        self._shown = shown

    def get_file_from_path(self, path: str) -> File | None:
        return super().get_file_from_path(self._shown.get(path, path))


_anchors = Anchors()


def on_config(config: MkDocsConfig) -> None:
    """Set the anchors."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _anchors


def on_env(_env: object, config: MkDocsConfig, **_others: object) -> None:
    """Leave out the pages that only a server has a use for: those of the theme itself."""
    config.theme.static_templates.clear()


def on_page_markdown(markdown: str, **_of_the_page: object) -> str:
    """Count the headings of each page from its beginning, and read cells of tables as GitHub does.

    There a pipe in code needs a backslash too, which Python-Markdown would show.
    """
    _anchors.start_page()
    return _ROW.sub(lambda row: _CODE.sub(_without_backslash, row.group()), markdown)


def _without_backslash(code: re.Match[str]) -> str:
    return code.group().replace("\\|", "|")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by those of the repository, in its layout."""
    root = Path(config.config_file_path).parent
    docs = Path(config.docs_dir).relative_to(root).as_posix()
    kept = []
    for file in files:
        if file.src_dir != config.docs_dir:  # the theme's
            kept.append(file)
        elif file.inclusion is not InclusionLevel.EXCLUDED:
            kept.append(_file(config, root, f"{docs}/{file.src_uri}", file.inclusion))
    kept += [_file(config, root, page.name) for page in sorted(root.glob("*.md"))]
    shown: dict[str, str] = {}
    known = {file.src_uri for file in kept}
    for file in kept:
        if file.is_documentation_page():
            for target in _links(file.content_string, file.src_uri):
                if target not in known:
                    _show(root, target, shown)
    pages = [_page_of(config, root, source, page) for source, page in shown.items()]
    return Repository([*kept, *pages], shown)


def _file(
    config: MkDocsConfig,
    root: Path,
    path: str,
    inclusion: InclusionLevel = InclusionLevel.UNDEFINED,
) -> File:
    return File(path, str(root), config.site_dir, config.use_directory_urls, inclusion=inclusion)


def _links(text: str, page: str) -> Iterator[str]:
    """What the relative links of a page name, as paths in the repository."""
    for token in _PARSER.parse(text):
        for child in token.children or ():
            if child.type == "link_open":
                scheme, server, path, _, _ = urlsplit(str(child.attrs["href"]))
                if path and not scheme and not server:
                    folder = posixpath.dirname(page)
                    yield posixpath.normpath(posixpath.join(folder, unquote(path)))


def _show(root: Path, source: str, shown: dict[str, str]) -> None:
    """Give a source file, or a folder with all that is in it and linked from it, their pages."""
    path = root / source
    if source.startswith(".") or path.suffix == ".md" or source in shown:
        return
    if path.is_file():
        shown[source] = f"{source}.md"
    elif path.is_dir():
        shown[source] = page = f"{source}/README.md"
        inside = [file.relative_to(root).as_posix() for file in _files_in(path)]
        readme = root / page
        text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
        for each in (*inside, *_links(text, page)):
            _show(root, each, shown)


def _files_in(folder: Path) -> list[Path]:
    """What a folder holds, without caches and what is hidden."""
    return sorted(it for it in folder.iterdir() if not it.name.startswith((".", "__pycache__")))


def _page_of(config: MkDocsConfig, root: Path, source: str, page: str) -> File:
    path = root / source
    readme = root / page
    if path.is_file():
        text = _unsearched(f"# `{path.name}`\n\n{_code_block(path)}")
    elif readme.is_file():
        text = f"{readme.read_text(encoding='utf-8')}\n## Files\n\n{_list_of(path)}"
    else:
        text = _unsearched(f"# `{path.name}`\n\n{_list_of(path)}")
    return File.generated(config, page, content=text, inclusion=InclusionLevel.NOT_IN_NAV)


def _unsearched(text: str) -> str:
    return f"---\nsearch:\n  exclude: true\n---\n{text}"


def _code_block(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    lexer = find_lexer_class_for_filename(file.name)
    language = lexer.aliases[0] if lexer else "text"
    fence = "`" * max(3, *(1 + len(run) for run in re.findall("`+", text) or [""]))
    return f"{fence}{language}\n{text}\n{fence}\n"


def _list_of(folder: Path) -> str:
    names = [file.name for file in _files_in(folder) if file.name != "README.md"]
    return "".join(f"- [`{name}`](<{name}>)\n" for name in names)
