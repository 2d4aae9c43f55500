"""What was fetched is used only if it has the hashes in the repository."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from perago.errors import SetupError
from perago.servers import conductor, lakefs
from perago.servers.toolchain import checksums, golang, spark_jars, tool
from perago.servers.toolchain.cache import Cache


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An artifact of two files that the list knows."""
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a.jar", "b.jar")}
    monkeypatch.setattr(checksums, "expected_hashes", lambda _: hashes)
    return hashes


def fetched(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        (folder / f"{name}.jar").write_text(content)
    return folder


def test_the_files_of_an_artifact_pass(tmp_path: Path, listed: dict[str, str]) -> None:
    checksums.verify_files("x", fetched(tmp_path, a="a.jar", b="b.jar"), "do it yourself")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a": "a.jar", "b": "forged"}, "b.jar: its hash is "),
        ({"a": "a.jar"}, "b.jar: it is missing"),
        ({"a": "a.jar", "b": "b.jar", "c": "more"}, "c.jar: it is not part of the release"),
    ],
)
def test_anything_else_is_refused_with_a_way_out(
    tmp_path: Path, listed: dict[str, str], files: dict[str, str], said: str
) -> None:
    with pytest.raises(SetupError) as caught:
        checksums.verify_files("x", fetched(tmp_path, **files), "do it yourself")
    assert said in str(caught.value)
    assert "do it yourself" in caught.value.hint


def test_an_artifact_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError):
        checksums.verify_files("no-such-artifact", tmp_path, "do it yourself")


@pytest.mark.parametrize("found", ["h1:forged=", None])
def test_forged_sources_of_lakefs_are_not_built(
    found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []

    def run(command: list[str], **_: object) -> str:
        commands.append(command[1])
        return json.dumps({"Dir": str(tmp_path), "Sum": found})

    monkeypatch.setattr(tool, "run", run)
    monkeypatch.setattr(golang, "find", lambda: golang.Go(Path("go"), {}))
    with pytest.raises(SetupError, match="is not what was released"):
        lakefs.program().build(tmp_path)
    assert commands == ["mod"]


def test_every_version_that_is_fetched_has_its_hashes() -> None:
    [jar] = checksums.expected_hashes(f"conductor-{conductor.VERSION}")
    assert jar == f"conductor-server-{conductor.VERSION}-boot.jar"
    [module] = checksums.expected_hashes(f"lakefs-{lakefs.VERSION}")
    assert module.endswith(f"@v{lakefs.VERSION}")
    jars = checksums.expected_hashes(f"spark-s3a-{spark_jars.VERSION}")
    assert any(name.startswith("hadoop-aws-") for name in jars)


def test_the_jars_in_the_user_s_cache_have_the_hashes() -> None:
    folder = Cache.of_user().root / f"spark-s3a-{spark_jars.VERSION}"
    if not folder.is_dir():
        pytest.skip("the jars of S3A were not fetched on this machine")
    checksums.verify_files(folder.name, folder, "")
