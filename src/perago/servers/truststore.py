"""Build a Java truststore from a PEM bundle, for a LakeFS with a private authority.

Java cannot read a PEM bundle, and ``keytool`` imports one certificate at a time, so the bundle is
split. The store holds public certificates: its password protects nothing, but Java requires one.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from perago.errors import ConfigurationError, SetupError

PASSWORD = "changeit"  # noqa: S105  Java's own default; there is nothing secret in the store
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SECONDS = 60.0


def build_truststore(bundle: Path, java: Path, target: Path) -> Path:
    """Write every certificate of ``bundle`` into a new PKCS#12 file ``target``."""
    try:
        certificates = _CERTIFICATE.findall(bundle.read_text(encoding="ascii", errors="replace"))
    except OSError as error:
        raise ConfigurationError(
            f"PERAGO_CA_BUNDLE names {bundle}, which cannot be read: {error.strerror}"
        ) from error
    if not certificates:
        raise ConfigurationError(
            f"PERAGO_CA_BUNDLE names {bundle}, which holds no certificate",
            hint="Set it to a PEM file, which has lines with BEGIN CERTIFICATE.",
        )
    target.unlink(missing_ok=True)
    for number, certificate in enumerate(certificates):
        _import(java.with_name("keytool"), certificate, f"authority-{number}", target)
    return target


def java_options(truststore: str) -> str:
    """Build the options that make a JVM trust the authorities of a store and no others."""
    return (
        f"-Djavax.net.ssl.trustStore={truststore} -Djavax.net.ssl.trustStoreType=PKCS12 "
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"
    )


def _import(keytool: Path, certificate: str, alias: str, target: Path) -> None:
    command = [str(keytool), "-importcert", "-noprompt", "-alias", alias]
    command += ["-keystore", str(target), "-storetype", "PKCS12", "-storepass", PASSWORD]
    try:
        subprocess.run(
            command, input=certificate.encode(), capture_output=True, timeout=_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        raise ConfigurationError(
            f"PERAGO_CA_BUNDLE: certificate {alias} cannot be used: "
            f"{error.stdout.decode(errors='replace').strip()}"
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(
            f"keytool, a part of a full Java, failed: {error}",
            hint="Set JAVA_HOME to a full Java 17 or 21.",
        ) from error
