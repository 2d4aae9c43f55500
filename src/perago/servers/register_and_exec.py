"""Name this process to the watchdog, then become the server.

Run by path, in isolated mode and without site-packages, because it stands before every start:
``python -I -S register_and_exec.py FD PROGRAM ARGUMENT…``. It holds the watchdog's pipe open
until it has written its own pid, which ``exec`` keeps. So there is no moment in which a server
runs and the watchdog does not know it, not even when the parent is killed right after the fork.
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
