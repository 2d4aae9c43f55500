"""Register this process with the watchdog, then execute the server in its place.

Run by path, in isolated mode and without site-packages, because it delays every start:
``python -I -S register_and_exec.py FD PROGRAM ARGUMENT…``. It keeps the watchdog's pipe open until
it has written its pid, and ``exec`` keeps the pid. So the watchdog knows every server before it
runs, even if the parent is killed right after the fork.
"""

import os
import signal
import sys


def main() -> None:
    """Write ``server PID`` to the pipe, close it, and replace this process by the program."""
    pipe, program = int(sys.argv[1]), sys.argv[2:]
    os.write(pipe, f"server {os.getpid()}\n".encode())
    os.close(pipe)
    # Python ignores SIGPIPE, and an ignored signal stays ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program[0], program)  # noqa: S606  the program is the one the parent chose


if __name__ == "__main__":
    main()
