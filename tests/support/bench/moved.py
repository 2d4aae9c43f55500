"""Run as a process: move a folder once, as an attempt does, and tell seconds and peak memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import SecretStr

from perago.connections import LakeFSConnection
from support.bench.movers import AttemptsWay
from support.lake_repository import LakeRepository
from support.lake_sdk import connect
from support.measured import peak_kilobytes


def main() -> None:
    """Read what to move, and where LakeFS is, from the standard input."""
    order = json.load(sys.stdin)
    connection = LakeFSConnection(
        order["endpoint"], order["access_key_id"], SecretStr(order["secret"])
    )
    lake = LakeRepository(connection, connect(connection), order["repository"], Path(order["root"]))
    mover, folder = AttemptsWay(Path(order["caches"])), Path(order["folder"])
    move = mover.up if order["way"] == "up" else mover.down
    seconds, found = move(lake, order["ref"], folder)
    print(json.dumps({"seconds": seconds, "found": found, "megabytes": peak_kilobytes() // 1024}))


if __name__ == "__main__":
    main()
