"""What a session is sent, and when two contents are the same."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perago.spark import shipment as module
from perago.spark.files import SparkFiles
from perago.spark.packages import INTERPRETER, INTERPRETER_SETTING
from perago.spark.shipment import Shipment


@dataclass
class Session:
    """As much of a session as sending needs; pyspark puts a zip on this process's path."""

    sent: list[tuple[str, ...]] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    @property
    def conf(self) -> Any:
        return SimpleNamespace(set=self.settings.__setitem__)

    def addArtifacts(self, *files: str, **kind: Any) -> None:  # noqa: N802  pyspark's name
        for file in files:
            self.sent.append((Path(file).name, *kind))
            if file.endswith(".zip"):
                sys.path.insert(1, file)
                with zipfile.ZipFile(io.BytesIO(Path(file).read_bytes())) as packed:
                    self.names += packed.namelist()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules to send, and no packages."""
    for name in ("one.py", "two.py", "perago_python"):
        (tmp_path / name).write_text(name)
    found = {name: tmp_path / name for name in ("one.py", "two.py")}
    monkeypatch.setattr(module, "module_files", lambda *_: dict(found))
    monkeypatch.setattr(module, "interpreter_file", lambda _: tmp_path / "perago_python")
    return tmp_path


@pytest.mark.usefixtures("project")
def test_a_cluster_gets_an_interpreter_and_a_zip_of_modules() -> None:
    session, path = Session(), list(sys.path)
    Shipment().content(shares=False).send(session)
    assert session.sent == [("perago_python", "file"), ("perago_modules.zip", "pyfile")]
    assert session.names == ["one.py", "two.py"]
    assert session.settings == {INTERPRETER_SETTING: INTERPRETER}
    # The body finds its modules where it found them before.
    assert sys.path == path


def test_the_files_of_the_settings_are_sent_too(project: Path) -> None:
    session = Session()
    files = SparkFiles((f"{project}/one.py",), (f"{project}/words.tgz#words",))
    (project / "words.tgz").touch()
    Shipment((), (), files).content(shares=False).send(session)
    assert session.sent[2:] == [("one.py", "pyfile"), ("words.tgz#words", "archive")]


def test_a_server_that_shares_our_modules_gets_the_files_alone(project: Path) -> None:
    session = Session()
    content = Shipment((), (), SparkFiles((f"{project}/one.py",))).content(shares=True)
    content.send(session)
    assert not content.is_empty
    assert session.sent == [("one.py", "pyfile")]
    assert session.settings == {}
    assert Shipment().content(shares=True).is_empty


def test_the_same_files_are_the_same_content_wherever_they_lie(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = Shipment().content(shares=False).digest
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("one.py", "two.py"):
        (elsewhere / name).write_bytes((project / name).read_bytes())
    found = {name: elsewhere / name for name in ("one.py", "two.py")}
    monkeypatch.setattr(module, "module_files", lambda *_: found)
    assert Shipment().content(shares=False).digest == digest


@pytest.mark.parametrize("name", ["one.py", "perago_python", "lib.py", "words.tgz"])
def test_each_file_is_part_of_the_content(name: str, project: Path) -> None:
    for added in ("lib.py", "words.tgz"):
        (project / added).touch()
    files = SparkFiles((f"{project}/lib.py",), (f"{project}/words.tgz#words",))
    shipment = Shipment((), (), files)
    before = shipment.content(shares=False)
    assert shipment.content(shares=False).digest == before.digest
    (project / name).write_text("something else")
    assert shipment.content(shares=False).digest != before.digest


def test_names_and_folders_are_part_of_the_content(project: Path) -> None:
    (project / "words.tgz").touch()
    digests = {
        Shipment((), (), SparkFiles((), (f"{project}/words.tgz#{folder}",)))
        .content(shares=False)
        .digest
        for folder in ("words", "others")
    }
    assert len(digests) == 2


def test_files_that_did_not_change_are_neither_read_nor_packed_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipment = Shipment()
    shipment.content(shares=False).send(Session())
    read: list[object] = []
    given = hashlib.file_digest

    def noted(stream: Any, kind: str) -> Any:
        read.append(Path(stream.name))
        return given(stream, kind)

    monkeypatch.setattr(hashlib, "file_digest", noted)
    packed: list[object] = []
    monkeypatch.setattr(module, "zip_files", packed.append)
    shipment.content(shares=False)._zip  # noqa: B018  it is there already
    assert (read, packed) == ([], [])
    (project / "one.py").write_text("changed")
    shipment.content(shares=False)
    assert read == [project / "one.py"]


def test_an_interpreter_that_was_removed_from_the_cache_is_made_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipment = Shipment()
    digest = shipment.content(shares=False).digest
    file = project / "perago_python"
    file.unlink()

    def make(_: object) -> Path:
        file.write_text("perago_python")
        return file

    monkeypatch.setattr(module, "interpreter_file", make)
    assert shipment.content(shares=False).digest == digest
