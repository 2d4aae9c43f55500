"""A private authority is trusted if it is named; otherwise nothing is sent."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perago.connections import Authorities
from perago.errors import BackendUnavailableError, LostReplyError
from perago.lakefs.control import LakeFSControl
from perago.protocol.workspace import StagingBranch
from support.adapter_calls import ID, lakefs
from support.garbage_server import GarbageServer, answer
from support.tls import https_before

USER = {"GET /api/v1/user ": answer("200 OK", b'{"user": {"id": "u"}}')}


def test_an_authority_must_be_known_before_anything_is_sent(tmp_path: Path) -> None:
    with (
        GarbageServer(lambda: iter([b""]), USER) as server,
        https_before(server.url, tmp_path) as front,
    ):
        connection = replace(lakefs(front.url), connect_timeout=10.0, read_timeout=10.0)
        trusting = replace(connection, authorities=Authorities.read(front.ca_bundle))
        with closing(LakeFSControl(connection)) as lake:
            with pytest.raises(BackendUnavailableError, match="certificate") as caught:
                lake.create_branch(StagingBranch("repo", "staging"), ID)
            assert type(caught.value) is BackendUnavailableError
            assert server.requests == []
        with closing(LakeFSControl(trusting)) as lake:
            lake.check_access()
            with pytest.raises(LostReplyError):
                lake.create_branch(StagingBranch("repo", "staging"), ID)
