"""Compare what was fetched with the hashes in ``checksums.toml``; anything else is refused.

A mirror, a proxy or a resolver's configuration decides where files come from. The hashes decide
which files are used.
"""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from pathlib import Path

from perago.errors import SetupError

_FILE = Path(__file__).with_name("checksums.toml")


@cache
def expected_hashes(artifact: str) -> dict[str, str]:
    """Return the hashes of an artifact's files; empty for an artifact that is not listed."""
    hashes: dict[str, str] = tomllib.loads(_FILE.read_text(encoding="utf-8")).get(artifact, {})
    return hashes


def verify_files(artifact: str, folder: Path, alternative: str) -> None:
    """Raise ``SetupError`` unless a folder holds exactly the files of an artifact."""
    found = {path.name: _sha256(path) for path in folder.iterdir() if path.is_file()}
    _compare(artifact, found, expected_hashes(artifact), alternative)


def verify_module(module: str, found: str | None, expected: str, alternative: str) -> None:
    """Raise ``SetupError`` unless the sources of a Go module have their hash."""
    _compare(module, {module: found or "none"}, {module: expected}, alternative)


def _compare(
    artifact: str, found: dict[str, str], expected: dict[str, str], alternative: str
) -> None:
    problems = [
        f"{name}: {_difference(found.get(name), expected.get(name))}"
        for name in sorted(found.keys() | expected.keys())
        if found.get(name) != expected.get(name)
    ]
    if problems or not expected:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise SetupError(
            f"what was fetched for {artifact} is not what was released; nothing of it is used:\n"
            f"{listed}",
            hint="Check PERAGO_MAVEN_REPOSITORY, GOPROXY and the network, then try again; or "
            f"{alternative}.",
        )


def _difference(found: str | None, expected: str | None) -> str:
    if found is None:
        return "it is missing"
    if expected is None:
        return "it is not part of the release"
    return f"its hash is {found}, not {expected}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
