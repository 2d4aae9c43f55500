"""Make text fit to be shown or sent: mask secrets in it and escape control characters.

Nothing should put a secret into a text in the first place. This is the second line of defence, for
texts of libraries, servers and task bodies.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from perago.text import MASK

# The variables that hold a secret. Processes that do not need them must not inherit them.
SECRET_VARIABLES = (
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
    "CONDUCTOR_AUTH_SECRET",
    # The address of a Spark Connect server carries its token.
    "SPARK_REMOTE",
)
SPARK_CONF_PREFIX = "PERAGO_SPARK_CONF_"
_hidden: dict[str, str] = {}
# Names like those that Spark redacts in its own pages, and those of connectors to clouds:
# fs.azure.account.key.…, fs.azure.sas.…, fs.s3a.encryption.key, ….private.key. "Key" alone names
# no secret: tables have primary keys.
_SECRET_NAME = re.compile(
    r"""
    secret | passw(?:or)?d | passphrase | token | credential | connection[._-]*string
    | (?:access|account|api|auth|customer|encryption|hmac|master|private|shared|signing|storage)
      [._-]*key
    | (?<![a-z])sas(?![a-z]) | (?-i:(?<=[a-z0-9])Sas(?![a-z]))
    """,
    re.IGNORECASE | re.VERBOSE,
)
# A shorter value would be masked in the middle of words, and the name of a class is no secret.
_LEAST_SECRET = 8
_CLASS_NAME = re.compile(r"(?:[a-z][a-z0-9_]*\.){2,}[A-Za-z_$][\w$]*|(?i:true|false)")


def names_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def remember_named_secrets(values: Mapping[str, str]) -> None:
    """Mask the values of settings whose names say that they are secrets, wherever they turn up."""
    for name, value in values.items():
        if name == "SPARK_REMOTE":
            remember_spark_remote(value)
        elif names_secret(name) and _may_be_secret(value):
            remember_secret(value)


def _may_be_secret(value: str) -> bool:
    return len(value) >= _LEAST_SECRET and _CLASS_NAME.fullmatch(value) is None


def is_secret_variable(name: str) -> bool:
    """Whether this variable of a worker holds a secret."""
    return name in SECRET_VARIABLES or (name.startswith(SPARK_CONF_PREFIX) and names_secret(name))


def hide_secret_variables() -> None:
    """Remove the worker's secrets from this process's environment.

    Code of task authors, and the processes it starts, must not find them there.
    """
    for name in [name for name in os.environ if is_secret_variable(name)]:
        _hidden[name] = os.environ.pop(name)
    remember_named_secrets(_hidden)


def environment_with_secrets() -> dict[str, str]:
    """Return the environment as it was before the secrets were removed, for Perago's own use."""
    return {**os.environ, **_hidden}


class Masker:
    """Replaces secrets in texts, in every form in which a secret gets into a text."""

    def __init__(self, secrets: Iterable[tuple[str | None, str]] = ()) -> None:
        self._spellings: tuple[str, ...] = ()
        for key, secret in secrets:
            self.add(secret, key)

    def add(self, secret: str, key: str | None = None) -> None:
        """Mask a secret from now on; ``key`` is the id with which it is sent as Basic auth."""
        found = {*self._spellings, *filter(None, _spellings(key, secret))}
        # Longest first, so that no spelling is half replaced by a shorter one.
        self._spellings = tuple(sorted(found, key=len, reverse=True))

    def forget(self, secret: str) -> None:
        """Mask a secret no more."""
        gone = _spellings(None, secret)
        self._spellings = tuple(kept for kept in self._spellings if kept not in gone)

    def __call__(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return str(text)


_of_this_process = Masker()


def remember_secret(secret: str, key: str | None = None) -> None:
    """Have ``mask_secrets`` mask this secret from now on, in this process."""
    _of_this_process.add(secret, key)


def forget_secret(secret: str) -> None:
    """Have ``mask_secrets`` forget a secret that opens nothing any more."""
    _of_this_process.forget(secret)


def remember_spark_remote(remote: str) -> None:
    """Mask the token of a Spark Connect address; the host in it is no secret."""
    _, _, rest = remote.partition("token=")
    if token := rest.partition(";")[0]:
        remember_secret(token)


def mask_secrets(text: str) -> str:
    """Mask every secret that this process was told to remember."""
    return _of_this_process(text)


def mask_data(value: Any) -> Any:
    """Mask secrets in the texts of JSON data, keys included; its depth must be bounded."""
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, dict):
        return {mask_data(key): mask_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask_data(item) for item in value]
    return value


def sendable(text: str) -> str:
    """Mask secrets and escape control characters, for a text that leaves this process."""
    return escape_controls(mask_secrets(text))


def escape_controls(text: str) -> str:
    """Escape everything that could steer a terminal; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else escaped(char) for char in text)


def escaped(char: str) -> str:
    """Write one character with an escape, such as ``\\x1b``."""
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def _spellings(key: str | None, secret: str) -> set[str]:
    """List the forms of a secret: itself, quoted, in a URL, in Basic auth."""
    forms = {
        secret,
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        quote(secret, safe=""),
        quote_plus(secret),
    }
    if key is not None:
        forms.add(base64.b64encode(f"{key}:{secret}".encode()).decode())
    return forms
