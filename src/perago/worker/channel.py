"""The line between a supervisor and one executor: framed, typed messages over a socket pair."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import threading
import time
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from perago.protocol.identity import Execution
from perago.protocol.json_value import encode_json
from perago.protocol.outcome import Completed, Failed, Outcome

_HEADER = struct.Struct(">I")
_PIECE = 1 << 18
# Above every payload; a length beyond it means that the stream holds no frames.
_LARGEST_FRAME = 1 << 29
# The time limit of one message. Each end always has a thread that reads, or is about to die.
_SEND_SECONDS = 30.0
# How long an executor waits for an answer: no answer means no.
ANSWER_SECONDS = 10.0


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class Ready(_Message):
    """Executor: my tasks are loaded, give me something to do."""

    kind: Literal["ready"] = "ready"
    pid: int
    # What this system does not offer for ending processes, in words.
    lacks: tuple[str, ...] = ()


class Assignment(_Message):
    """Supervisor: run this.

    The input travels as a text of its own: what it holds cannot break the message around it.
    """

    kind: Literal["assignment"] = "assignment"
    task: str
    execution: Execution
    payload_json: str

    @classmethod
    def of(cls, task: str, execution: Execution, payload: dict[str, Any]) -> Self:
        """Build an assignment; an input that JSON cannot write raises ``ValueError``."""
        return cls(task=task, execution=execution, payload_json=json.dumps(payload))

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.payload_json)
        return payload


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
    number: int


class ProceedDecision(_Message):
    """Supervisor: go on, or stop here."""

    kind: Literal["proceed_decision"] = "proceed_decision"
    # Of the question that this answers.
    number: int
    go: bool
    why: str = ""


class StateRequested(_Message):
    """Executor, for a body that asks: how much time is left?"""

    kind: Literal["state_requested"] = "state_requested"
    number: int


class StateReported(_Message):
    """Supervisor: so much, and whether the worker stops."""

    kind: Literal["state_reported"] = "state_reported"
    number: int
    seconds_left: float | None
    stopped: bool


class SparkRequested(_Message):
    """Executor: this attempt needs Spark; where is it?"""

    kind: Literal["spark_requested"] = "spark_requested"
    number: int


class SparkAddress(_Message):
    """Supervisor: there, or nowhere and why."""

    kind: Literal["spark_address"] = "spark_address"
    number: int
    # It carries a token, so it travels on this line only.
    remote: str | None = Field(default=None, repr=False)
    why: str = ""
    hint: str = ""


class OutputReported(_Message):
    """Executor: the task logged this text, which is in the worker's log already."""

    kind: Literal["output_reported"] = "output_reported"
    text: str


class Finished(_Message):
    """Executor: this is how it ended."""

    kind: Literal["finished"] = "finished"
    execution_id: str
    output_json: str | None = None
    failed: Failed | None = None

    @classmethod
    def of(cls, execution: Execution, outcome: Outcome) -> Self:
        if isinstance(outcome, Failed):
            return cls(execution_id=execution.id, failed=outcome)
        return cls(execution_id=execution.id, output_json=encode_json(outcome.output).decode())

    def is_of(self, execution: Execution) -> bool:
        return self.execution_id == execution.id

    @property
    def outcome(self) -> Outcome:
        if self.failed is not None:
            return self.failed
        return Completed(json.loads(self.output_json or "{}"))


Message = (
    Ready
    | Assignment
    | PhaseReported
    | MayProceed
    | ProceedDecision
    | StateRequested
    | StateReported
    | SparkRequested
    | SparkAddress
    | OutputReported
    | Finished
)
_messages: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


class ChannelClosedError(Exception):
    """The other end is gone, or does not speak as it should."""


class Channel:
    """One end of the line. Sending is safe from several threads, receiving from one.

    The socket itself never blocks: sending and receiving each wait for it with a limit of their
    own, so that a receiver's tick cannot cut off what is being sent.
    """

    def __init__(self, end: socket.socket, *, send_seconds: float = _SEND_SECONDS) -> None:
        end.setblocking(False)
        self._socket = end
        self._send_seconds = send_seconds
        self._sending = threading.Lock()
        self._owner = os.getpid()
        self._buffer = bytearray()
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(end, select.POLLIN)
        self._writable.register(end, select.POLLOUT)

    def send(self, message: Message) -> None:
        """Send a whole message; raise ``ValueError`` before anything is sent if it is no JSON."""
        if self.is_inherited:
            raise ChannelClosedError("the line is that of the parent process")
        body = message.model_dump_json().encode()
        with self._sending:
            try:
                self._send(_HEADER.pack(len(body)) + body)
            except OSError as error:
                # Half a message may be on the line: nothing after it could be understood.
                self._shut()
                raise ChannelClosedError(str(error)) from error

    def receive(self, timeout: float | None) -> Message | None:
        """The next message; None if there is none within ``timeout`` seconds."""
        while (message := self._take()) is None:
            try:
                if not self._readable.poll(None if timeout is None else timeout * 1000):
                    return None
                piece = self._socket.recv(_PIECE)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not piece:
                raise ChannelClosedError("end of file")
            self._buffer += piece
        return message

    @property
    def is_inherited(self) -> bool:
        """Whether this is a forked process: what it sends could cut its parent's messages."""
        return os.getpid() != self._owner

    def close(self) -> None:
        self._shut()
        self._socket.close()

    def _shut(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, data: bytes) -> None:
        deadline = time.monotonic() + self._send_seconds
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        f"the other end took no message within {self._send_seconds:g} s"
                    ) from None
                self._writable.poll(left * 1000)

    def _take(self) -> Message | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._buffer)
        if length > _LARGEST_FRAME:
            raise ChannelClosedError("what came is no message")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        try:
            return _messages.validate_json(body)
        except ValueError as error:
            raise ChannelClosedError("what came is no message") from error
