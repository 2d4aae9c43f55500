"""Generated listings and folders for the properties of the transfer."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from perago.transfer.inventory import RemoteObject
from perago.transfer.scan import LocalTree, StatRecord, scan

# Few letters, so that clashes such as ``a`` beside ``a/b`` are common, and the odd ones.
_SEGMENT_CHARACTERS = "abAB.é\u0301 \\%#?*[\n\x7f"
segments = st.one_of(
    st.text(_SEGMENT_CHARACTERS, min_size=1, max_size=3),
    st.sampled_from(["", ".", "..", "x" * 255, "x" * 256, "é" * 128, "nul\x00", "-rf", "\ud800"]),
)
ODD_NAMES = [
    *["with space", " leading", "trailing ", "#hash", "ques?tion", "per%cent", "%2F", "%2e%2e"],
    *["plus+and&semi;", "quo'te\"s", "brack[et]s{}", "star*pipe|", "back\\slash", "<a>:^~`"],
    *["größe", "日本語", "e\u0301", "\U0001f600", "\u2028", "\x85", "\ufeffbom"],
    *["new\nline", "tab\there", "bell\x07", "del\x7f", "cr\r"],
    *[".hidden", "..two", "...", "-rf", "--delete", "~", "a=b,c@d$e!"],
]
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)
plain_paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)


def remote(key: str, size: int = 1) -> RemoteObject:
    return RemoteObject(key, size, "text/plain", {"of": key})


def record(size: int = 1, *, at: int = 1, inode: int = 1) -> StatRecord:
    return StatRecord(size, at, at, inode)


def tree_of(files: dict[str, StatRecord], folders: set[str] | None = None) -> LocalTree:
    """A tree whose folders are those of its files and some empty ones."""
    found = set(folders or ())
    for path in [*files, *(f"{folder}/x" for folder in found)]:
        while "/" in path:
            path = path.rpartition("/")[0]
            found.add(path)
    return LocalTree(files, frozenset(found))


def contents(folder: Path) -> dict[str, bytes]:
    """What a folder holds, by path."""
    return {path: (folder / path).read_bytes() for path in scan(folder).files}
