"""Write a new project: tasks, a test, a workflow and sample data that run as they are."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from perago.errors import ConfigurationError

# It also becomes the name of the repository and of the workflow.
_NAME = re.compile(r"[a-z][a-z0-9-]{2,62}", re.ASCII)
# Each file with the template that it is written from.
_FILES = {
    "README.md": "README.md",
    "perago.toml": "perago.toml",
    "pipeline.py": "pipeline.py",
    "test_pipeline.py": "test_pipeline.py",
    "workflow.json": "workflow.json",
    "data/sales/orders/2026-03.csv": "orders.csv",
}
_SPARK_FILES = {
    "pipeline.py": "pipeline_spark.py",
    "test_pipeline.py": "test_pipeline_spark.py",
}


def create_project(folder: Path, *, spark: bool) -> list[str]:
    """Write the files of a project into a new or empty folder; return their names.

    Raises ``ConfigurationError`` for a name that cannot be used and a folder that is not empty.
    """
    name = folder.name or folder.resolve().name  # of `.`
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{name!r} cannot be the name of a project: it is also the name of a repository in "
            "LakeFS",
            hint="Use 3 to 63 lower-case letters, digits and '-', beginning with a letter.",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(
            f"{str(folder)!r} is there already, and is not an empty folder",
            hint="Choose another name, or remove it.",
        )
    values = {
        "NAME": name,
        "TASK": name.replace("-", "_"),
        "SPARK_NOTE": ", and with Spark over tables" if spark else "",
        "DEV_OPTION": "" if spark else " --no-spark",
    }
    chosen = _FILES | (_SPARK_FILES if spark else {})
    try:
        for file, template in chosen.items():
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as written:
                written.write(_filled(template, values))
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {str(folder)!r}: {error.strerror or error}",
            hint="Run the command in a folder that you can write.",
        ) from error
    return list(chosen)


def _filled(template: str, values: dict[str, str]) -> str:
    """Fill in a template; its marks are none that Python, JSON or a shell would use."""
    text = (files(__package__) / "templates" / f"{template}.tmpl").read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@@{key}@@", value)
    return text
