"""The line between a supervisor and one executor: framed, typed messages over a socket pair."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from perago.protocol.identity import Execution
from perago.protocol.outcome import Completed, Failed

_HEADER = struct.Struct(">I")
_PIECE = 1 << 16


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class Ready(_Message):
    """Executor: my tasks are loaded, give me something to do."""

    kind: Literal["ready"] = "ready"


class Assignment(_Message):
    """Supervisor: run this."""

    kind: Literal["assignment"] = "assignment"
    task: str
    execution: Execution
    payload: dict[str, Any]


class PhaseReported(_Message):
    """Executor: a phase event."""

    kind: Literal["phase_reported"] = "phase_reported"
    action: str
    phase: str
    seconds: float | None
    details: dict[str, Any]


class MayProceed(_Message):
    """Executor, at every fence: may I go on?"""

    kind: Literal["may_proceed"] = "may_proceed"


class ProceedDecision(_Message):
    """Supervisor: go on, or stop here."""

    kind: Literal["proceed_decision"] = "proceed_decision"
    go: bool
    why: str = ""


class SparkRequested(_Message):
    """Executor: this attempt needs Spark; where is it?"""

    kind: Literal["spark_requested"] = "spark_requested"


class SparkAddress(_Message):
    """Supervisor: there, or nowhere and why."""

    kind: Literal["spark_address"] = "spark_address"
    # It carries a token, so it travels on this line only.
    remote: str | None = Field(default=None, repr=False)
    why: str = ""
    hint: str = ""


class Finished(_Message):
    """Executor: this is how it ended."""

    kind: Literal["finished"] = "finished"
    outcome: Completed | Failed


Message = (
    Ready
    | Assignment
    | PhaseReported
    | MayProceed
    | ProceedDecision
    | SparkRequested
    | SparkAddress
    | Finished
)
_messages: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


class ChannelClosedError(Exception):
    """The other end is gone."""


class Channel:
    """One end of the line. Sending is safe from several threads, receiving from one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        body = message.model_dump_json().encode()
        try:
            with self._sending:
                self._socket.sendall(_HEADER.pack(len(body)) + body)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def receive(self, timeout: float | None) -> Message | None:
        """The next message; None if there is none within ``timeout`` seconds."""
        while (message := self._take()) is None:
            self._socket.settimeout(timeout)
            try:
                piece = self._socket.recv(_PIECE)
            except TimeoutError:
                return None
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not piece:
                raise ChannelClosedError("end of file")
            self._buffer += piece
        return message

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _take(self) -> Message | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return _messages.validate_json(body)
