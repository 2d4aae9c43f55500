"""docs/configuration.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from perago.settings import Settings
from perago.settings.model import variable_of
from perago.settings.sources import LAKECTL_FILE_VARIABLE

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def documented_default(name: str) -> str:
    if name in {"workspace_root", "object_cache", "spark_logs"}:
        return "per user"
    default = Settings.model_fields[name].default
    if default is None:
        return "-"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def test_the_table_lists_every_setting_with_its_names_default_and_meaning() -> None:
    rows = [
        f"| `{variable_of(name)}` | `{name.replace('_', '-')}` | {documented_default(name)} "
        f"| {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index("## Settings")
    table = [line for line in lines[start:] if line.startswith("| `")]
    assert table[: len(rows)] == rows
    assert not any("PERAGO_" in line for line in table[len(rows) :])


def test_the_page_names_the_variable_that_chooses_lakectl_s_file() -> None:
    assert LAKECTL_FILE_VARIABLE in PAGE.read_text(encoding="utf-8")
