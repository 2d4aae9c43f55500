"""What goes wrong in a soak, chosen by a seeded random generator."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from perago.testing import HttpFault
from soak.findings import Happened
from soak.fleet import WORKERS, Fleet

_PAUSE = (2.0, 6.0)
_FREEZE = (1.0, 10.0)
_AWAY = (1.0, 5.0)
_LATE = (1.0, 15.0)
_NTH = 25
_KEEP_SECONDS = 1.0
WEIGHTS = {
    "network fault": 60,
    "executor killed": 12,
    "executor frozen": 8,
    "supervisor killed": 7,
    "supervisor frozen": 7,
    "LakeFS restarted": 4,
    "Conductor restarted": 2,
}


def any_fault(chooser: random.Random) -> HttpFault:
    """A fault of the network of any kind."""
    late = round(chooser.uniform(*_LATE), 1)
    return chooser.choice(
        [
            HttpFault.cut_before(),
            HttpFault.cut_after(),
            HttpFault.cut_inside(),
            HttpFault.answer(chooser.choice([429, 500, 503, 504])),
            HttpFault.page(),
            HttpFault.delay(round(chooser.uniform(0.5, 5.0), 1)),
            HttpFault.late(late),
            HttpFault.late(late, status=None),
        ]
    )


class Chaos:
    """Lets things go wrong on a thread of its own, until it is stopped."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._chooser = random.Random(seed + 1)  # noqa: S311  faults, not secrets
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="chaos"),
            # Apart from it: starting a worker takes a while, and faults go on meanwhile.
            threading.Thread(target=self._keep_workers, name="keeper"),
        ]
        self.happened: list[Happened] = []
        self._actions: dict[str, Callable[[], str | None]] = {
            "network fault": self._network_fault,
            "executor killed": self._kill_executor,
            "executor frozen": self._freeze_executor,
            "supervisor killed": self._kill_supervisor,
            "supervisor frozen": self._freeze_supervisor,
            "LakeFS restarted": lambda: self._restart("lakefs"),
            "Conductor restarted": lambda: self._restart("conductor"),
        }

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait until what was going wrong is over."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for proxy in self._fleet.proxies.values():
            proxy.clear()
            proxy.await_late(_LATE[1] + 5)

    def _run(self) -> None:
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        while not self._stop.wait(self._chooser.uniform(*_PAUSE)):
            [name] = self._chooser.choices(names, weights)
            begun = self._fleet.now()
            try:
                kind = self._actions[name]()
            except Exception as error:  # noqa: BLE001  reported; the soak goes on
                self._fleet.problems.append(f"{name}: {type(error).__name__}: {error}")
                continue
            if kind is not None:
                self.happened.append(Happened(begun, kind))

    def _keep_workers(self) -> None:
        while not self._stop.wait(_KEEP_SECONDS):
            self._fleet.note_workers_that_ended()
            self._fleet.note_processes()
            if len(self._fleet.alive()) < WORKERS:
                self._fleet.start_worker()

    def _network_fault(self) -> str | None:
        """Inject one, and count it only once it has happened."""
        server = self._chooser.choice(["lakefs", "lakefs", "conductor"])
        proxy, fault = self._fleet.proxies[server], any_fault(self._chooser)
        injected = proxy.inject(".*", ".*", fault, nth=self._chooser.randint(1, _NTH))
        if not injected.happened.wait(15):
            proxy.clear()
            return None
        return f"{server} {fault.kind.replace('_', ' ')}"

    def _kill_executor(self) -> str | None:
        process = self._some_executor()
        if process is None:
            return None
        process.kill()
        return "executor killed"

    def _freeze_executor(self) -> str | None:
        return self._freeze(self._some_executor(), "executor frozen")

    def _freeze_supervisor(self) -> str | None:
        workers = self._fleet.alive()
        if not workers:
            return None
        process = psutil.Process(self._chooser.choice(workers).pid)
        return self._freeze(process, "supervisor frozen")

    def _kill_supervisor(self) -> str | None:
        workers = self._fleet.alive()
        if not workers:
            return None
        self._fleet.kill_worker(self._chooser.choice(workers))
        return "supervisor killed"

    def _restart(self, name: str) -> str:
        server = getattr(self._fleet.stack, name)
        server.stop()
        time.sleep(self._chooser.uniform(*_AWAY))
        server.start()
        return f"{'LakeFS' if name == 'lakefs' else 'Conductor'} restarted"

    def _some_executor(self) -> psutil.Process | None:
        found = [item for worker in self._fleet.alive() for item in self._fleet.executors(worker)]
        return self._chooser.choice(found) if found else None

    def _freeze(self, process: psutil.Process | None, kind: str) -> str | None:
        if process is None:
            return None
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
            try:
                time.sleep(self._chooser.uniform(*_FREEZE))
            finally:
                process.send_signal(signal.SIGCONT)
            return kind
        return None
