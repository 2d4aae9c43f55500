"""An error that comes from another process is the one that was raised there."""

from __future__ import annotations

import errno

import pytest

from perago import errors
from perago.transfer.on_spark.failures import decode, encode


def every_error(kind: type[errors.PeragoError] = errors.PeragoError) -> list[type[Exception]]:
    """Every class of the tree; tests may have defined some of their own."""
    ours = (sub for sub in kind.__subclasses__() if sub.__module__ == errors.__name__)
    return [kind, *(leaf for sub in ours for leaf in every_error(sub))]


@pytest.mark.parametrize("kind", every_error())
def test_every_error_of_perago_keeps_its_class_text_and_hint(
    kind: type[errors.PeragoError],
) -> None:
    back = decode(encode(kind("what went wrong: größe\n", hint="Do this.")))
    assert type(back) is kind
    assert str(back) == "what went wrong: größe\n"
    assert isinstance(back, errors.PeragoError)
    assert back.hint == "Do this."


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOSPC, errno.EIO])
def test_a_system_error_keeps_its_number_and_its_file(number: int) -> None:
    there = OSError(number, "the reason", "/some/file\udce9")
    back = decode(encode(there))
    assert type(back) is type(there)
    assert str(back) == str(there)


@pytest.mark.parametrize("there", [ValueError("v"), TypeError("t"), RuntimeError("r")])
def test_a_plain_error_keeps_its_class_and_text(there: Exception) -> None:
    back = decode(encode(there))
    assert (type(back), str(back)) == (type(there), str(there))


class StrangerError(Exception):
    """Of a library that only the other process has."""


def test_an_error_of_an_unknown_class_is_told_by_name() -> None:
    assert str(decode(encode(StrangerError("boo")))) == "StrangerError: boo"
    unicode = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")
    assert str(decode(encode(unicode))).startswith("UnicodeDecodeError: ")
