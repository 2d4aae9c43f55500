"""Write Java truststores: of a private authority, and of the authorities that this machine trusts.

Java cannot read a PEM file. ``keytool`` imports one certificate at a time, which takes a minute for
the authorities of a machine, and the libraries for this are abandoned. The format JKS is a short
list of certificates that every Java reads, so it is written here. It holds public certificates: its
password protects nothing, but Java requires one.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

from perago.connections import Authorities
from perago.errors import ConfigurationError

PASSWORD = "changeit"  # noqa: S105  Java's own default; there is nothing secret in the store
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
# Part of the format: the digest at the end is of the password, these words and the entries.
_WHITENER = b"Mighty Aphrodite"


def write_bundle(authorities: Authorities, target: Path) -> Path:
    """Write the certificates of ``PERAGO_CA_BUNDLE`` into a new store ``target``."""
    found = _CERTIFICATE.findall(authorities.pem)
    return _write([_decode(pem, n, authorities.file) for n, pem in enumerate(found, 1)], target)


def write_machine(target: Path) -> Path | None:
    """Write the authorities that Python trusts here; None if it knows of none.

    That is the machine's bundle, or the one of ``SSL_CERT_FILE``.
    """
    found = ssl.create_default_context().get_ca_certs(binary_form=True)
    return _write(found, target) if found else None


def java_options(store: Path | str) -> list[str]:
    """Build the options that make a JVM trust the authorities of a store and no others."""
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def _decode(pem: str, number: int, file: Path) -> bytes:
    try:
        # The first call decodes base64 only; the second one reads what it decoded.
        der = ssl.PEM_cert_to_DER_cert(pem)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except (ValueError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"PERAGO_CA_BUNDLE names {file}, whose certificate {number} cannot be read: {error}"
        ) from error
    return der


def _write(certificates: Sequence[bytes], target: Path) -> Path:
    entries = [struct.pack(">III", _MAGIC, _VERSION, len(certificates))]
    for number, der in enumerate(certificates):
        made_at = 0
        entries.append(struct.pack(">I", _TRUSTED) + _text(f"authority-{number}"))
        entries.append(struct.pack(">q", made_at) + _text("X.509"))
        entries.append(struct.pack(">I", len(der)) + der)
    store = b"".join(entries)
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(PASSWORD.encode("utf-16-be") + _WHITENER + store)
    target.write_bytes(store + digest.digest())
    return target


def _text(value: str) -> bytes:
    encoded = value.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded
