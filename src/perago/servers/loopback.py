"""Choose free ports of the loopback interface, and know this machine's other address."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"
# An address of no machine, beyond the gateway.
_ELSEWHERE = "192.0.2.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        # Like servers: a port in TIME_WAIT of an earlier run is free, one with a listener is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def routed_address(host: str | None) -> str:
    """Return the address from which this machine reaches another one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for target in filter(None, (host, _ELSEWHERE)):
            try:
                probe.connect((target, 9))
                found: str = probe.getsockname()[0]
            except OSError:
                continue
            return found
    return socket.gethostname()


def choose(names: Sequence[str], remembered: Mapping[str, int]) -> dict[str, int]:
    """Choose a free port for each name: the remembered one if it is still free, else a new one."""
    chosen: dict[str, int] = {}
    with ExitStack() as held:
        for name in names:
            wanted = remembered.get(name)
            if wanted is not None and wanted not in chosen.values() and is_free(wanted):
                chosen[name] = wanted
                continue
            # Bound until all are chosen, so that the kernel does not return one port twice.
            holder = held.enter_context(socket.socket())
            holder.bind((LOOPBACK, 0))
            chosen[name] = holder.getsockname()[1]
    return chosen
