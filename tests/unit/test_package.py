"""The built distribution works when it is installed where no source tree is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
MODULE = """
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, require_file, task


class Params(BaseModel):
    name: str


class Result(BaseModel):
    size: int


@task(
    name="measure",
    owner_email="data@example.com",
    workspace=WorkspaceSpec("raw", pre=[require_file("a.txt")], read_only=True),
)
def measure(workspace: Path, params: Params) -> Result:
    return Result(size=(workspace / params.name).stat().st_size)
"""


def run(*command: str | Path, folder: Path) -> str:
    # Without PYTHONPATH and settings: nothing but what is installed may be found.
    unwanted = ("PYTHON", "PERAGO_", "LAKECTL_", "CONDUCTOR_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """``python -m build``: the source distribution, and the wheel made from it."""
    folder = tmp_path_factory.mktemp("dist")
    # The build backend is one of the pinned packages: nothing is fetched.
    run(sys.executable, "-m", "build", "--no-isolation", "-o", folder, ROOT, folder=folder)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and with this environment's other packages."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    run(*pip, "install", "--no-deps", "--no-index", built.wheel, folder=folder)
    [packages] = folder.glob("lib/python*/site-packages")
    # A path in a .pth file comes after the environment's own packages, and the .pth files below it
    # are not read: an editable installation of Perago there has no effect.
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(paths)) + "\n")
    return folder / "bin"


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built: Built) -> None:
    expected = {
        file.relative_to(SOURCE).as_posix()
        for file in (SOURCE / "perago").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(built.wheel) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert "perago/py.typed" in found
    assert found == expected


def test_the_source_distribution_holds_the_license_and_the_tests(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.split("/")[1] for name in sdist.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "src", "tests"} <= names


def test_the_installed_package_is_the_wheel_s(installed: Path, tmp_path: Path) -> None:
    place = run(
        installed / "python", "-c", "import perago; print(perago.__file__)", folder=tmp_path
    )
    assert Path(place.strip()).is_relative_to(installed.parent)


def test_the_installed_command_shows_its_version(installed: Path, tmp_path: Path) -> None:
    defined = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(installed / "perago", "--version", folder=tmp_path) == f"perago {defined}\n"


def test_the_installed_command_checks_a_task_module(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "measuring.py").write_text(MODULE)
    assert run(installed / "perago", "check", "measuring", folder=tmp_path) == "measure: ok\n"
    [taskdef] = json.loads(run(installed / "perago", "extract", "measuring", folder=tmp_path))
    assert (taskdef["name"], taskdef["inputKeys"]) == ("measure", ["workspace", "params"])
