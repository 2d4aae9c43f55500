"""Large objects in pieces: how many are under way at once, and how long one may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from perago.transfer.inventory import PIECE

Piece = TypeVar("Piece")

_PIECES_AHEAD = 3
# A piece may take this many times the read timeout.
PIECE_PATIENCE = 4


def pieces_at_once(piece: int) -> int:
    """Return how many parts are in memory together: fewer when they are large."""
    return max(1, _PIECES_AHEAD * PIECE // piece)


def read_ahead(read: Callable[[int, int], Piece], size: int, first: int = 0) -> Iterator[Piece]:
    """Read an object in pieces, some ahead, so that hashing does not delay the next request.

    ``read`` is called with the start and the length of a piece; ``first`` is the first start.
    """
    starts = range(first, size, PIECE)
    with ThreadPoolExecutor(_PIECES_AHEAD, thread_name_prefix="perago-range") as ahead:

        def request(start: int) -> Future[Piece]:
            return ahead.submit(read, start, min(PIECE, size - start))

        pending = [request(start) for start in starts[:_PIECES_AHEAD]]
        for start in starts[_PIECES_AHEAD:]:
            yield pending.pop(0).result()
            pending.append(request(start))
        for piece in pending:
            yield piece.result()
