"""The warden: a small process between a supervisor and one executor that ends what is left.

The supervisor starts the warden, and the warden forks the executor. It runs no author's code, so it
always gets its turn. When the executor ends, or when the supervisor asks for it or is gone (its end
of a pipe closes), the warden kills every process below itself, also those with sessions of their
own, and ends in the way the executor ended. If the warden itself is killed, the kernel kills the
executor, and the supervisor, or the next one, ends the rest by the control group.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys

from perago.worker import cgroups, kernel

_END_SECONDS = 10.0
_TICK_MS = 200
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: list[str]) -> None:
    """Fork the executor, wait for its end or the supervisor's, and clear up."""
    is_grouped = bool(arguments[3]) and cgroups.join(arguments[3])
    line, life, log = (int(text) for text in arguments[:3])
    lacks = [] if is_grouped else ["control group"]
    lacks += [] if kernel.adopt_orphans() else ["child subreaper"]
    for number in _STOPS:  # a service manager's stop is the supervisor's to handle
        signal.signal(number, signal.SIG_IGN)
    warden = os.getpid()
    executor = os.fork()
    if executor == 0:
        os.close(life)
        _become_executor(warden, line, log, arguments[4:], lacks)
    os.close(line)
    os.close(log)
    _wait(executor, life)
    # The executor is not reaped before: until then its number, and its group's, is not reused.
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(executor, signal.SIGKILL)
    status = os.waitpid(executor, 0)[1]
    kernel.end_descendants(_END_SECONDS)
    if is_grouped:  # the supervisor may be gone
        cgroups.leave(arguments[3])
    _end_like(os.waitstatus_to_exitcode(status))


def _become_executor(
    warden: int, line: int, log: int, arguments: list[str], lacks: list[str]
) -> None:
    code = 1
    try:
        os.setsid()
        dies = kernel.die_with_parent()
        if os.getppid() != warden:
            return
        for number in _STOPS:
            signal.signal(number, signal.SIG_DFL)
        kernel.adopt_orphans()
        lacks += [] if dies else ["parent-death signal"]
        lacks += [] if kernel.prefer_for_oom_killer() else ["oom_score_adj"]
        # Not before the fork: the warden stays small.
        from perago.worker import executor

        engine, *targets = arguments
        executor.main(line, log, targets, moves_on_spark=engine == "spark", lacks=tuple(lacks))
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  it is printed, and the process ends
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(executor: int, life: int) -> None:
    """Wait until the executor has ended, or the supervisor has closed its end of the pipe."""
    waiting = select.poll()
    waiting.register(life, select.POLLIN)
    tick: int | None = _TICK_MS
    with contextlib.suppress(OSError, AttributeError):
        waiting.register(os.pidfd_open(executor), select.POLLIN)
        tick = None
    while not waiting.poll(tick):
        if os.waitid(os.P_PID, executor, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return


def _end_like(code: int) -> None:
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
