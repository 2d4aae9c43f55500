"""From a listing to relative paths."""

from __future__ import annotations

import pytest

from perago.names import listing_prefix
from perago.transfer.inventory import project
from support.trees import remote


def test_prefix_audio_does_not_bring_audio_archive() -> None:
    objects = [remote("audio/a"), remote("audio-archive/b"), remote("audio"), remote("audiox")]
    assert set(project(objects, "audio").files) == {"a"}
    assert listing_prefix("audio") == "audio/"


def test_the_whole_repository_is_mapped_without_its_actions() -> None:
    objects = [remote("a/b"), remote("_lakefs_actions/x.yaml"), remote("_lakefs_actions/", 0)]
    projection = project(objects, "")
    assert set(projection.files) == {"a/b"}
    assert projection.markers == {}


@pytest.mark.parametrize("prefix", ["_lakefs_actions", "_lakefs_actions/deep"])
def test_actions_are_not_part_of_a_projection_under_their_own_prefix(prefix: str) -> None:
    projection = project([remote("_lakefs_actions/deep/x.yaml")], prefix)
    assert not projection.files
    assert not projection.markers


def test_the_attempt_marker_is_ignored_at_the_root_of_the_projection_only() -> None:
    objects = [remote("p/.perago-attempt.json"), remote("p/sub/.perago-attempt.json")]
    assert set(project(objects, "p").files) == {"sub/.perago-attempt.json"}


def test_empty_keys_with_a_trailing_slash_are_folders_and_full_ones_are_files() -> None:
    projection = project([remote("p/", 0), remote("p/dir/", 0), remote("p/full/", 3)], "p")
    assert set(projection.markers) == {"dir"}
    assert set(projection.files) == {"full/"}
