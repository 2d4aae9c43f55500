"""Read and write Java's properties format, as far as Spark's files use it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from perago.errors import ConfigurationError

# As Java defines them; Python's definitions include more characters.
_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
# The key ends at the first `=`, `:` or white space that is not escaped by a backslash.
_ENTRY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])+)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(file: Path) -> dict[str, str]:
    """Read the entries of a file; errors name lines and never quote them."""
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    entries: dict[str, str] = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise ConfigurationError(f"{file}:{number}: not a `key=value` line")
        entries[_unescaped(entry["key"])] = _unescaped(entry["value"])
    return entries


def write_properties(entries: Mapping[str, str]) -> str:
    """Write the text of a properties file, escaped so that a value cannot add an entry."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in entries.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers: continued lines joined, comments left out."""
    held, began = "", 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.lstrip(_BLANK)
        if not held:
            began = number
            if not line or line[0] in "#!":
                continue
        body = line.rstrip("\\")
        if (len(line) - len(body)) % 2:
            held += line[:-1]
            continue
        yield began, held + line
        held = ""
    if held:
        yield began, held


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _NAMED.get(code, code)

    return _ESCAPE.sub(plain, text)


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\")
    for name, character in _NAMED.items():
        text = text.replace(character, f"\\{name}")
    # Leading white space would be dropped.
    return "\\" + text if text.startswith(" ") else text
