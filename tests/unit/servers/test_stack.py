"""What is said when a stack starts."""

from __future__ import annotations

import pytest

from perago.servers.stack import javas


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ([("lakefs", "")], []),
        (
            [("lakefs", ""), ("conductor", "Java 21 at a"), ("spark", "Java 21 at a")],
            ["conductor and spark run on Java 21 at a"],
        ),
        (
            [("conductor", "Java 25 at a"), ("spark", "Java 17 at b")],
            ["conductor runs on Java 25 at a", "spark runs on Java 17 at b"],
        ),
    ],
)
def test_each_java_is_named_once(servers: list[tuple[str, str]], said: list[str]) -> None:
    assert list(javas(servers)) == said
