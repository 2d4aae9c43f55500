"""What can go wrong with one request, and which request it is to go wrong with."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Literal

FaultKind = Literal[
    "cut_before",
    "cut_after",
    "cut_inside",
    "answer",
    "page",
    "delay",
    "late",
    "hold_before",
    "hold_after",
]


@dataclass(frozen=True, slots=True)
class HttpFault:
    """What goes wrong with one request; made by one of the functions below."""

    kind: FaultKind
    status: int | None = None
    seconds: float = 0.0

    @classmethod
    def cut_before(cls) -> HttpFault:
        """Close the connection; the server never gets the request."""
        return cls("cut_before")

    @classmethod
    def cut_after(cls) -> HttpFault:
        """Let the server carry the request out, and close the connection without its reply."""
        return cls("cut_after")

    @classmethod
    def cut_inside(cls) -> HttpFault:
        """Pass half of the reply on: of its body, or of its head where it has no body."""
        return cls("cut_inside")

    @classmethod
    def answer(cls, status: int) -> HttpFault:
        """Answer with a status and an empty body; the server never gets the request."""
        return cls("answer", status)

    @classmethod
    def page(cls) -> HttpFault:
        """Answer 200 with an HTML page; the server never gets the request."""
        return cls("page", 200)

    @classmethod
    def delay(cls, seconds: float) -> HttpFault:
        """Let the server carry the request out now, and pass the reply on after ``seconds``."""
        return cls("delay", None, seconds)

    @classmethod
    def late(cls, seconds: float, *, status: int | None = 504) -> HttpFault:
        """Answer with a status (or cut: ``None``) now; the server gets the request later."""
        return cls("late", status, seconds)

    @classmethod
    def hold_before(cls) -> HttpFault:
        """Keep the request until ``FaultProxy.release``; then deliver it."""
        return cls("hold_before")

    @classmethod
    def hold_after(cls) -> HttpFault:
        """Let the server carry the request out; keep the reply until ``FaultProxy.release``."""
        return cls("hold_after")

    def __str__(self) -> str:
        parts = [self.kind.replace("_", "-")]
        parts += [str(self.status)] if self.status is not None else []
        parts += ["cut"] if self.kind == "late" and self.status is None else []
        parts += [f"{self.seconds:g}s"] if self.seconds else []
        return "-".join(parts)


@dataclass(slots=True, eq=False)
class Injected:
    """A fault that waits for its request."""

    method: str
    path: str
    fault: HttpFault
    # How many matching requests are left until it happens; 0 once it was due.
    left: int
    happened: threading.Event = field(default_factory=threading.Event)

    def matches(self, method: str, path: str) -> bool:
        return bool(re.fullmatch(self.method, method) and re.search(self.path, path))


@dataclass(slots=True, eq=False)
class Exchange:
    """One request that reached the proxy, and what became of it."""

    method: str
    path: str
    fault: HttpFault | None = None
    # What the server answered; None while it has not, or where it never got the request.
    server_status: int | None = None
