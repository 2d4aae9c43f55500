"""A place in LakeFS, as it is written on a command line."""

from __future__ import annotations

import pytest

from perago.errors import ConfigurationError, NotFoundError
from perago.lakefs.repositories import BlockStore, LakeFSRepositories
from perago.operations.locations import Location, create_missing, parse_location


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


class OneStore(LakeFSRepositories):
    """A server without repositories and with one kind of store; it remembers what is created."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store
        self.created: list[tuple[str, str, str]] = []

    def default_branch(self, repository: str) -> str:
        raise NotFoundError("repository not found")

    def block_store(self) -> BlockStore:
        return self._store

    def create(self, repository: str, storage_namespace: str, default_branch: str) -> None:
        self.created.append((repository, storage_namespace, default_branch))


@pytest.mark.parametrize(
    ("store", "given", "namespace"),
    [
        (BlockStore("local", "local://"), None, "local://shop"),
        (BlockStore("local", None), None, "local://shop"),
        (BlockStore("s3", "s3://lake/all"), None, "s3://lake/all/shop"),
        (BlockStore("s3", "s3://lake/all/"), "s3://other/shop", "s3://other/shop"),
        (BlockStore("s3", None), "s3://other/shop", "s3://other/shop"),
    ],
)
def test_a_new_repository_lies_where_the_server_or_the_user_says(
    store: BlockStore, given: str | None, namespace: str
) -> None:
    repositories = OneStore(store)
    create_missing(repositories, Location("shop", "test"), given)
    assert repositories.created == [("shop", namespace, "test")]


def test_a_cloud_store_without_a_default_place_asks_for_one() -> None:
    with pytest.raises(ConfigurationError, match="no default place") as raised:
        create_missing(OneStore(BlockStore("gs", None)), Location("shop"), None)
    assert "--storage gs://BUCKET/shop" in raised.value.hint


def test_a_name_that_cannot_be_a_branch_is_refused_before_anything_is_made() -> None:
    repositories = OneStore(BlockStore("local", None))
    with pytest.raises(ConfigurationError, match="cannot be the name of a branch"):
        create_missing(repositories, Location("shop", "v1.0"), None)
    assert repositories.created == []
