"""Turn what a request to Spark can end with into errors of Perago."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from perago.errors import BackendUnavailableError, ConfigurationError, PeragoError

# Functions travel as Python's byte code, which differs between minor versions. Spark refuses them
# on the executor, and the reason comes back inside of its error for the job.
_MISMATCH = re.compile(
    r"Python in worker has different version: (?P<there>\S+) than that in driver: (?P<here>[\d.]+)"
)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate every error of Spark's client; its libraries have no common base class."""
    try:
        yield
    except PeragoError:
        raise
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        raise BackendUnavailableError(
            f"Spark could not {what}: {type(error).__name__}: {first_line}",
            hint="Check that the Spark Connect server is up; its log has the details.",
        ) from error


def explain_mismatch(text: str) -> ConfigurationError | None:
    """Find in an error of Spark that two versions of Python met; None for any other error."""
    found = _MISMATCH.search(text)
    if found is None:
        return None
    here = found["here"].rstrip(".")
    return ConfigurationError(
        f"Spark's executors run Python {found['there']}, and this worker runs Python {here}",
        hint=f"Install Python {here} on every machine of the cluster (or in its image) and name it "
        "with PYSPARK_PYTHON, or run the worker with the cluster's version.",
    )


def tell_mismatch(session: Any) -> None:
    """Let a session's requests fail with our error in place of Spark's."""
    handle: Callable[[Exception], NoReturn] = session.client._handle_error

    def explained(error: Exception) -> NoReturn:
        try:
            handle(error)
        except Exception as raised:
            if (known := explain_mismatch(str(raised))) is not None:
                raise known from raised
            raise

    session.client._handle_error = explained
