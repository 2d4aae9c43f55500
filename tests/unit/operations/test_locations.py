"""A place in LakeFS, as it is written on a command line."""

from __future__ import annotations

import pytest

from perago.errors import ConfigurationError
from perago.operations.locations import Location, parse_location


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("shop", Location("shop")),
        ("shop@main", Location("shop", "main")),
        ("shop/sales", Location("shop", None, "sales")),
        ("shop@main/sales/2026", Location("shop", "main", "sales/2026")),
        ("shop@main/", Location("shop", "main")),
        ("shop@v1.0/a b/", Location("shop", "v1.0", "a b")),
    ],
)
def test_a_location_has_a_repository_a_ref_and_a_prefix(text: str, location: Location) -> None:
    assert parse_location(text) == location
    assert parse_location(str(location)) == location


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a place"),
        ("lakefs://shop/main", "is not a place"),
        ("shop@/x", "is not a place"),
        ("shop@a@b", "is not a place"),
        ("Shop", "cannot be the name of a repository"),
        ("ab", "cannot be the name of a repository"),
        ("shop@main/../x", "prefix '../x'"),
        ("shop@main/a//b", "prefix 'a//b'"),
        ("shop/_lakefs_actions", "_lakefs_actions/ is never part of a workspace"),
    ],
)
def test_what_is_no_location_is_refused_with_the_way_to_write_one(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_location(text)
    assert says in str(raised.value)
    assert "REPOSITORY@BRANCH/PREFIX" in raised.value.hint
