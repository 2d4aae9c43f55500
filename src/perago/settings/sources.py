"""Read the sources of settings. Each gives values by field name, and the problems it has.

Problems name a place. They never show a value or quote a line of a file, which may hold a secret.
"""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from perago.errors import ConfigurationError
from perago.home import absolute
from perago.settings.model import SECRET_FIELDS, Settings, variable_of

ENVIRONMENT = "environment"
# Other programs have variables of this kind too, so only a slip or two is taken for a misspelling.
_ALMOST = 0.9
LAKECTL_FILE_VARIABLE = "LAKECTL_CONFIG_FILE"
LAKECTL_KEYS = {
    "lakefs_endpoint": ("server", "endpoint_url"),
    "lakefs_access_key_id": ("credentials", "access_key_id"),
    "lakefs_secret_access_key": ("credentials", "secret_access_key"),
}


@dataclass(frozen=True, slots=True)
class Given:
    """One value, with the key it has in its source."""

    value: Any = field(repr=False)
    key: str
    source: str
    file: Path | None = None
    # Whether the current folder brought it: its author need not be the user.
    is_from_folder: bool = False

    @property
    def place(self) -> str:
        return f"{self.key} ({self.source})"

    def is_exposed(self) -> bool:
        """Whether other users can read the file that holds it."""
        if self.file is None:
            return False
        try:
            mode = self.file.stat().st_mode
        except OSError:  # removed since it was read
            return False
        return bool(mode & (stat.S_IRGRP | stat.S_IROTH))


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """The values and the problems of one source."""

    values: dict[str, Given] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def from_environment() -> SettingsSource:
    """Read the variables that are set and not empty."""
    variables = {name: variable_of(name) for name in Settings.model_fields}
    return SettingsSource(
        {
            name: Given(value, variable, ENVIRONMENT)
            for name, variable in variables.items()
            if (value := os.environ.get(variable))
        }
    )


def misspelt_variables() -> list[str]:
    """Write a warning for each variable that is none of ours and almost the name of a setting."""
    known = [variable_of(name) for name in Settings.model_fields]
    unknown = sorted(name for name in os.environ if name.startswith("PERAGO_"))
    near = {
        name: difflib.get_close_matches(name, known, 1, _ALMOST)
        for name in unknown
        if name not in known
    }
    return [
        f"{name} ({ENVIRONMENT}): there is no such setting; did you mean {found[0]}?"
        for name, found in near.items()
        if found
    ]


def from_perago_toml() -> SettingsSource:
    """Read ``perago.toml`` in the current folder."""
    return _from_toml(Path("perago.toml"), (), "perago.toml")


def from_pyproject() -> SettingsSource:
    """Read ``[tool.perago]`` of the ``pyproject.toml`` in the current folder."""
    return _from_toml(Path("pyproject.toml"), ("tool", "perago"), "pyproject.toml [tool.perago]")


def from_lakectl() -> SettingsSource:
    """Read lakectl's file, and only the three keys that Perago uses."""
    named = os.environ.get(LAKECTL_FILE_VARIABLE)
    label = named or "~/.lakectl.yaml"
    try:
        file: Path | None = absolute(Path(label))
    except ConfigurationError:
        file = None
    content, problem = _read(file, label, _parse_yaml) if file else (None, None)
    if named and content is None and problem is None:
        problem = f"{LAKECTL_FILE_VARIABLE} names {named}, which is not there"
    if problem is not None:
        return SettingsSource(problems=(problem,))
    values: dict[str, Given] = {}
    for name, (section, key) in LAKECTL_KEYS.items():
        table = content.get(section) if isinstance(content, dict) else None
        value = table.get(key) if isinstance(table, dict) else None
        if value is not None and value != "":
            values[name] = Given(value, f"{section}.{key}", label, file)
    return SettingsSource(values)


def _from_toml(file: Path, header: tuple[str, ...], label: str) -> SettingsSource:
    content, problem = _read(file, file.name, _parse_toml)
    if problem is not None:
        return SettingsSource(problems=(problem,))
    for key in header:
        content = content.get(key) if isinstance(content, dict) else None
    if content is None:
        return SettingsSource()
    if not isinstance(content, dict):
        return SettingsSource(problems=(f"{label}: this must be a table",))
    values: dict[str, Given] = {}
    problems: list[str] = []
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in Settings.model_fields:
            problems.append(f"{key} ({label}): there is no such setting{_nearest(key)}")
        elif name in values:
            problems.append(f"{key} ({label}): this is also given as {values[name].key}")
        else:
            values[name] = Given(value, key, label, file, is_from_folder=True)
    return SettingsSource(values, tuple(problems))


def _nearest(key: str) -> str:
    """Suggest the most similar known key, spelled as in the documentation."""
    known = {name.replace("_", "-") for name in Settings.model_fields}
    # The key may also resemble the name of a variable.
    variables = {
        variable_of(name).lower().replace("_", "-"): name.replace("_", "-")
        for name in Settings.model_fields
    }
    wanted = key.lower().replace("_", "-")
    close = difflib.get_close_matches(wanted, [*known, *variables], n=1, cutoff=0)
    return f"; the nearest is {variables.get(close[0], close[0])}" if close else ""


def _read(file: Path, label: str, parse: Callable[[str], Any]) -> tuple[Any, str | None]:
    """Parse a file that may be absent; return its content or the problem with it."""
    try:
        return parse(file.read_text(encoding="utf-8")), None
    except (FileNotFoundError, NotADirectoryError):  # the latter for a user whose home is /dev/null
        return None, None
    except UnicodeDecodeError:
        return None, f"{label}: this is not UTF-8 text"
    except OSError as error:
        return None, f"{label}: this cannot be read: {error.strerror}"
    except _SyntaxProblemError as error:
        return None, f"{label}: {error}"


# What the parsers raise about a date or a number that is none, and about deep nesting.
_UNREADABLE = (ValueError, RecursionError)


class _SyntaxProblemError(Exception):
    """A syntax error with its place, without any of the content."""


def _parse_toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser's message ends with the place, and may quote a key before it.
        place = str(error).rpartition("(")[2].rstrip(")")
        raise _SyntaxProblemError(f"this is not valid TOML {place}") from None
    except _UNREADABLE:
        raise _SyntaxProblemError("this is not valid TOML") from None


def _parse_yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _SyntaxProblemError(f"this is not valid YAML{place}") from None
    except _UNREADABLE:
        raise _SyntaxProblemError("this is not valid YAML") from None


def exposed_secrets(values: dict[str, Given]) -> list[str]:
    """Write a warning for each used secret in a file that other users can read."""
    return [
        f"{given.place}: others can read this secret; run: chmod 600 {given.file}"
        for name, given in values.items()
        if name in SECRET_FIELDS and given.is_exposed()
    ]
