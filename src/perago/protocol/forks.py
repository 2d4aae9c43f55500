"""Keep a process that an author's code forks from going on as a second executor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


@contextmanager
def ending_forks() -> Iterator[None]:
    """End a process that is forked in the block and comes out of it, as at the end of a program.

    It would clear up the attempt's folder, publish, and report an outcome beside its parent.
    """
    own = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != own:
            _end(sys.exc_info()[1])


def _end(error: BaseException | None) -> NoReturn:
    code = 1
    try:
        if error is None:
            code = 0
        elif isinstance(error, SystemExit):
            code = _exit_code(error)
        else:
            sys.excepthook(type(error), error, error.__traceback__)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
    finally:
        os._exit(code)


def _exit_code(error: SystemExit) -> int:
    """Return what Python itself would end with."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1
