"""Load settings: the first source that has a value wins, and its name is kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from perago.errors import ConfigurationError
from perago.settings.model import SECRET_FIELDS, Settings, variable_of
from perago.settings.one_source import mixed_sources
from perago.settings.sources import (
    LAKECTL_KEYS,
    Given,
    SettingsSource,
    exposed_secrets,
    from_environment,
    from_lakectl,
    from_perago_toml,
    from_pyproject,
    misspelt_variables,
)
from perago.text import MASK

DEFAULT = "default"
# Both or neither. Whether LakeFS's settings are complete is checked where LakeFS is needed.
_CONDUCTOR_PAIR = ("conductor_auth_key", "conductor_auth_secret")


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One setting to show, with a secret masked."""

    field: str
    variable: str
    shown: str | None
    origin: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings with their origins, and warnings."""

    settings: Settings
    warnings: tuple[str, ...] = ()
    _given: dict[str, Given] = field(default_factory=dict, repr=False)

    def values(self) -> list[SettingValue]:
        """List every setting in the order of the documentation."""
        return [
            SettingValue(
                field=name,
                variable=variable_of(name),
                shown=_shown(name, getattr(self.settings, name)),
                origin=self._given[name].source if name in self._given else DEFAULT,
            )
            for name in Settings.model_fields
        ]


def load_settings() -> Settings:
    """Read the environment and the files, and log warnings.

    Raises one ``ConfigurationError`` that names every wrong value.
    """
    loaded = read_settings()
    for warning in loaded.warnings:
        logging.getLogger(__name__).warning("%s", warning)
    return loaded.settings


def read_settings() -> LoadedSettings:
    """Read like ``load_settings``, and return origins and warnings as well."""
    given, problems = _merge(from_environment(), from_perago_toml(), from_pyproject())
    lakectl = from_lakectl()
    if not _covers_lakefs(given):
        # lakectl's file belongs to lakectl: errors in it matter only if it is needed.
        problems += lakectl.problems
    given = {**lakectl.values, **given}
    settings: Settings | None = None
    try:
        settings = Settings(**{name: item.value for name, item in given.items()})
    except ValidationError as error:
        problems += _wrong_values(error, given)
    problems += _half_pair(given)
    problems += mixed_sources(given)
    if problems or settings is None:
        raise ConfigurationError(
            "\n".join(problems),
            hint="Correct the settings named above; docs/configuration.md lists every setting.",
        ) from None
    warnings = (*exposed_secrets(given), *misspelt_variables())
    return LoadedSettings(settings, warnings, given)


def _merge(*sources: SettingsSource) -> tuple[dict[str, Given], list[str]]:
    given: dict[str, Given] = {}
    problems: list[str] = []
    for source in sources:
        given = {**source.values, **given}
        problems += source.problems
    return given, problems


def _covers_lakefs(given: dict[str, Given]) -> bool:
    return all(name in given for name in LAKECTL_KEYS)


def _wrong_values(error: ValidationError, given: dict[str, Given]) -> list[str]:
    by_variable = {variable_of(name): name for name in Settings.model_fields}
    problems = []
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        name = str(item["loc"][0])
        place = given[by_variable.get(name, name)].place
        problems.append(f"{place}: {item['msg'].removeprefix('Value error, ')}")
    return problems


def _half_pair(given: dict[str, Given]) -> list[str]:
    there = [name for name in _CONDUCTOR_PAIR if name in given]
    missing = [name for name in _CONDUCTOR_PAIR if name not in given]
    if there and missing:
        return [f"{given[there[0]].place} is set, but {variable_of(missing[0])} is not"]
    return []


def _shown(name: str, value: Any) -> str | None:
    if name == "metrics_address" and value is None:
        return "off"
    if value is None:
        return None
    return MASK if name in SECRET_FIELDS else str(value)
