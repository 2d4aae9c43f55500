"""Run by the memory test in a process of its own: move one object and tell the peak memory."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from pydantic import SecretStr

from perago.connections import LakeFSConnection
from perago.lakefs.objects import LakeFSObjects
from perago.protocol.workspace import StagingBranch
from perago.transfer.engine import Engine
from perago.transfer.inventory import Projection, RemoteObject
from perago.transfer.plan import SyncPlan, Upload
from perago.transfer.scan import StatRecord


def main() -> None:
    """Read ``way``, ``key``, ``sizes`` and where to find LakeFS from the standard input."""
    order = json.load(sys.stdin)
    connection = LakeFSConnection(
        order["endpoint"], order["access_key_id"], SecretStr(order["secret"])
    )
    engine = Engine(LakeFSObjects(connection))
    repository, folder = order["repository"], Path(order["folder"])
    if order["way"] == "down":
        files = {str(n): RemoteObject(k, size) for n, (k, size) in enumerate(order["objects"])}
        engine.download(repository, "main", Projection(files, {}), folder)
    else:
        uploads: list[Upload] = []
        for key, size in order["objects"]:
            name = str(len(uploads))
            with (folder / name).open("wb") as file:
                for _ in range(size >> 20):
                    file.write(os.urandom(1 << 20))
            record = StatRecord.of((folder / name).stat())
            uploads.append(Upload(name, key, record, "a/b", {"owner": "me"}))
        plan = SyncPlan(tuple(uploads), (), 0)
        engine.stage(plan, StagingBranch(repository, "main"), folder)
    print(peak_kilobytes() // 1024)


def peak_kilobytes() -> int:
    """The peak since this program began; ``getrusage`` also counts the process that forked it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


if __name__ == "__main__":
    main()
