"""Tasks that misbehave in the ways that their params name."""

from __future__ import annotations

import ctypes
import gc
import io
import logging.config
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TimeoutPolicy, task
from perago.worker.channel import Channel


class Params(BaseModel):
    """What a body does, and with what."""

    do: str = ""
    value: Any = None
    # A file that the body writes its pids to.
    pids: str = ""


class Result(BaseModel):
    """Whatever a body returns."""

    value: Any = None


class Mute(Exception):  # noqa: N818  the name says what it does
    """An exception that cannot be shown."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("no text")

    __repr__ = __str__


SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]


def _note(params: Params, *pids: int) -> None:
    noted = Path(params.pids)
    fresh = noted.with_suffix(".new")
    fresh.write_text("\n".join(map(str, pids)))
    fresh.rename(noted)


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _leave_processes(params: Params) -> None:
    near = subprocess.Popen(SLEEPER)
    far = subprocess.Popen(SLEEPER, start_new_session=True)
    # A daemon: its parent ends at once, and it has a session of its own.
    twice = (
        "import os, subprocess, sys; "
        f"print(subprocess.Popen({SLEEPER!r}, start_new_session=True, stdout=-3, stderr=-3).pid)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", twice], capture_output=True, text=True, check=True
    )
    _note(params, near.pid, far.pid, int(shown.stdout))


def _hold_interpreter(params: Params) -> None:
    far = subprocess.Popen(SLEEPER, start_new_session=True)
    _note(params, os.getpid(), far.pid)
    # PyDLL does not let go of the interpreter's lock: no other thread gets its turn.
    ctypes.PyDLL(None).sleep(300)


def _print(params: Params) -> None:
    print(f"printed {params.value}")
    print("to stderr", file=sys.stderr)
    logging.getLogger("authors.module").warning("logged %s", params.value)
    thread = Thread(target=logging.getLogger("authors.module").warning, args=("from a thread",))
    thread.start()
    thread.join()
    subprocess.run(["sh", "-c", "echo from a child"], check=True)
    os.write(1, b"no line end")


def _wait_for_child(params: Params) -> int:
    child = subprocess.Popen(["sh", "-c", "sleep 300"])
    _note(params, os.getpid(), child.pid)
    return child.wait()


def _change_process() -> None:
    """Change what a process has once, and leave it so."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
    os.umask(0o777)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(1)
    socket.setdefaulttimeout(1e-6)
    sys.setrecursionlimit(200)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    logging.disable()
    logging.config.dictConfig({"version": 1})
    sys.stdout = io.StringIO()


def _process() -> dict[str, Any]:
    """What ``_change_process`` changes."""
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "folder": str(Path.cwd()),
        "umask": umask,
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "handler": str(signal.getsignal(signal.SIGALRM)),
        "timeout": socket.getdefaulttimeout(),
        "recursion": sys.getrecursionlimit(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "disabled": logging.root.manager.disable,
        "handlers": [type(handler).__name__ for handler in logging.root.handlers],
        "output": type(sys.stdout).__name__,
    }


def _fork(how: str) -> Any:
    """Fork a child that comes back from the body; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if how == "exit":
        sys.exit(3)
    if how == "raise":
        raise RuntimeError("raised in the child")
    return "of the child"


def _fork_while_sending() -> Any:
    """Fork while another thread sends to the supervisor; how a child that logs then ends."""
    [line] = [item for item in gc.get_objects() if isinstance(item, Channel)]
    with line._sending:
        child = os.fork()
        if child == 0:
            signal.alarm(5)  # ends it if it waits for the lock
            logging.getLogger("authors.module").warning("logged by a child")
            os._exit(0)
        status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


def _act(params: Params) -> Any:
    match params.do:
        case "change-process":
            _change_process()
        case "process":
            return _process()
        case "fork-while-sending":
            return _fork_while_sending()
        case "fork":
            return _fork(params.value)
        case "mute":
            raise Mute
        case "nested":
            return _nested(1000)
        case "surrogate":
            return "\ud800"
        case "large":
            return "x" * 20_000_000
        case "nan":
            return Result.model_construct(value=object())
        case "recurse":
            return _act(params)
        case "interrupt":
            raise KeyboardInterrupt
        case "flood":
            for number in range(20_000):
                print(f"line {number}")
        case "print":
            _print(params)
        case "leave":
            _leave_processes(params)
        case "leave-and-wait":
            _leave_processes(params)
            time.sleep(300)
        case "hold":
            _hold_interpreter(params)
        case "wait":
            _note(params, os.getpid())
            time.sleep(3.0)
        case "term-child":
            return _wait_for_child(params)
        case "garbage":
            _write_garbage()
        case "signals":
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        case "disk":
            raise OSError(28, "No space left on device")
        case "oom":
            return Path("/proc/self/oom_score_adj").read_text().strip()
        case "pid":
            return os.getpid()
    return params.value


def _write_garbage() -> None:
    """Write into every socket of this process."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            if str(link.readlink()).startswith("socket:"):
                os.write(int(link.name), b"\xff" * 64)
        except OSError:
            continue
    time.sleep(60)


@task(
    name="h_plain",
    owner_email="tests@example.com",
    controls=TaskControls(
        retry=RetryPolicy(count=0, delay_seconds=0), timeout=TimeoutPolicy(response_seconds=60)
    ),
)
def h_plain(params: Params) -> Result:
    """Do as told."""
    found = _act(params)
    return found if isinstance(found, Result) else Result.model_construct(value=found)
