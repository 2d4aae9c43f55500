"""The engine on Spark against the one in this process: the same trees, plans and errors."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from perago.errors import BackendDeniedError, NotFoundError, ProjectionError
from perago.lakefs.fence import ACTION_PATH, ACTION_TEXT
from perago.transfer.engines import TransferEngine
from perago.transfer.inventory import PIECE
from perago.transfer.on_spark.plan import may_have_changed
from perago.transfer.on_spark.tables import RECORD
from perago.transfer.partition import Bounds
from perago.transfer.plan import is_proven_unchanged
from perago.transfer.scan import FINE_TICK_NS, StatRecord
from support.engines import Body, Engines
from support.fault_proxy import FaultProxy
from support.lake_repository import LakeRepository
from support.trees import ODD_NAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def engines(lake: LakeRepository, spark_session: SparkSession) -> Engines:
    return Engines(lake, spark_session)


@pytest.mark.slow
def test_odd_names_markers_and_folders_that_become_files_come_out_the_same(
    engines: Engines,
) -> None:
    lake = engines.lake
    for number, name in enumerate(ODD_NAMES):
        lake.put(f"p/{name}", b"%d" % number * number, owner=f"me {number}")
        lake.put(f"p/in/{name}/inner", b"x")
    lake.put("p/empty", b"")
    lake.put("p/becomes", b"a file")
    lake.put("outside", b"x")
    for marker in ("p/", "p/kept/", "p/dropped/"):
        lake.put_marker(marker)
    ref = lake.commit()
    engines.bounds = Bounds(objects=20, size=200)
    found = [engines.outcome(e, ref, "p", odd_body) for e in (engines.process, engines.spark)]
    assert found[1] == found[0]
    assert len(found[0]) == 7


def odd_body(data: Path) -> None:
    for name in ODD_NAMES[::2]:
        (data / name).write_bytes(b"changed " + os.fsencode(name))
    for name in ODD_NAMES[::3]:
        (data / "in" / name / "inner").unlink()
    (data / "new").mkdir()
    (data / "new" / "file").write_bytes(b"n" * 300)
    (data / "new" / "nothing").touch()
    (data / "becomes").unlink()
    (data / "becomes").mkdir()
    (data / "becomes" / "folder").write_bytes(b"1")
    (data / "dropped").rmdir()


PATHS = st.lists(st.sampled_from(["a", "b", "é d", "x\ty"]), min_size=1, max_size=3).map("/".join)
CONTENT = st.binary(max_size=80)
TREES = st.dictionaries(PATHS | PATHS.map(lambda path: f"{path}/"), CONTENT, max_size=9)


# In many folders, so that each is a unit: markers, the attempt marker, actions, deep nesting.
NESTED = {
    **{f"p/q/{folder}/{name}": b"x" * name for folder in "abc" for name in range(3)},
    **{f"p/{'deep/' * 12}{name}": b"1" for name in ("one", "two")},
    "p/q/marked/": b"",
    "p/q/a/marked/": b"",
    "p/q/": b"",
    "p/q-r/x": b"1",
    "z": b"2",
    **{f"{start}.perago-attempt.json": b"1" for start in ("", "p/q/", "p/q/a/")},
    ACTION_PATH: ACTION_TEXT.encode(),
    "p/_lakefs_actions/x": b"1",
}
RENESTED = {
    "a/0": b"new",
    "b/1": b"x",
    "b/new/er": b"1",
    "marked/": b"",
    "p/q/a/0": b"x",
    "z": b"2",
    f"{'deep/' * 12}one": b"1",
    "fresh/": b"",
    "a/.perago-attempt.json": b"2",
}
FLAT = {f"f{number:02}": b"%d" % number for number in range(30)}
# A file where a folder must be, and keys that no file can have, in several units.
CLASHING = {
    "a": b"1",
    "a-b/fine": b"1",
    "a/1": b"1",
    "a/b/c/2": b"1",
    "a/b/c": b"1",
    "fine/x": b"1",
    "b//x": b"1",
    "c/d/../e": b"1",
    "c/f/g": b"1",
    "c/f/g/h/1": b"1",
    "z": b"1",
    "z/": b"",
}


def written_over(after: dict[str, bytes], data: Path) -> None:
    """Make a folder hold exactly a tree; what clashes in it is left out."""
    for entry in data.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for path, content in sorted(after.items()):
        target = data / path
        if path.endswith("/"):
            if not any(p.is_file() for p in [target, *target.parents]):
                target.mkdir(parents=True, exist_ok=True)
        elif not target.is_dir() and not any(p.is_file() for p in target.parents):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


TREES_TO_COMPARE: dict[str, tuple[dict[str, bytes], dict[str, bytes], str, int]] = {
    "nothing": ({}, {}, "", 5),
    "a file where a folder must be": ({"a": b"1", "a/b": b"2", "b": b""}, {}, "", 5),
    "actions": ({"a/b": b"1", "a/é d/": b""}, {"b": b"1", "_lakefs_actions/x": b""}, "", 5),
    "a prefix": ({"a/a": b"1", "b": b"2"}, {"a": b"1", "b/b": b"3"}, "a", 5),
    "many folders": (NESTED, RENESTED, "", 40),
    "many folders below a prefix": (NESTED, RENESTED, "p/q", 40),
    "one folder": (FLAT, dict(list(FLAT.items())[::2]), "", 40),
    "clashes in many folders": (CLASHING, {}, "", 40),
}
# What units have to do with each other shows in this one; all of them run in `make test-all`.
TELLING = ("many folders below a prefix",)


def assert_same(
    engines: Engines, before: dict[str, bytes], after: dict[str, bytes], prefix: str, units: int
) -> None:
    """Both engines lead to the same tree, plan and branch, or to the same error.

    Also the one on Spark when this process compares.
    """
    lake = engines.lake
    engines.units = units
    for key in lake.listing():
        lake.client.objects_api.delete_object(lake.repository, "main", key)
    for key, content in before.items():
        lake.client.objects_api.upload_object(lake.repository, "main", key, content=content)
    ref = lake.commit()
    found = [
        engines.outcome(engine, ref, prefix, lambda data: written_over(after, data))
        for engine in (engines.process, engines.spark, engines.spark_comparing_here)
    ]
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in TELLING else pytest.mark.slow)
        for name in TREES_TO_COMPARE
    ],
)
def test_chosen_trees_give_the_same_tree_plan_branch_or_error(engines: Engines, name: str) -> None:
    assert_same(engines, *TREES_TO_COMPARE[name])


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    before=TREES, after=TREES, prefix=st.sampled_from(["", "a"]), units=st.sampled_from([1, 4, 40])
)
def test_generated_trees_give_the_same_tree_plan_branch_or_error(
    engines: Engines, before: dict[str, bytes], after: dict[str, bytes], prefix: str, units: int
) -> None:
    assert_same(engines, before, after, prefix, units)


@pytest.mark.s3
def test_past_the_gateway_both_engines_do_the_same_and_nothing_holds_an_address(
    lake_on_s3: LakeRepository, spark_session: SparkSession
) -> None:
    lake = lake_on_s3
    for name, size in {"whole": 1 << 20, "large": PIECE + 5, "a/small": 7}.items():
        source = lake.root / "source"
        source.write_bytes(os.urandom(size))
        lake.put(name, source)
    ref = lake.commit()

    def body(data: Path) -> None:
        for name in ("whole", "large"):
            (data / name).write_bytes((data / name).read_bytes()[::-1])

    with FaultProxy(lake.connection.server) as proxy:
        engines = Engines(lake.through(proxy.endpoint), spark_session)
        found = [engines.outcome(e, ref, "", body) for e in (engines.process, engines.spark)]
        assert [line for line in proxy.requests if "/api/v1/" not in line] == []
        assert any("presign=true" in line for line in proxy.requests)
    assert found[1] == found[0]
    assert len(found[0]) == 7
    written = [path for path in lake.root.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if b"X-Amz-" in path.read_bytes()]


def test_an_error_in_a_task_is_the_one_of_this_process(engines: Engines) -> None:
    lake = engines.lake
    for number in range(20):
        lake.put(f"k{number}", b"x" * 10)
    ref = lake.commit()
    found = []
    for engine in (engines.process, engines.spark):
        with pytest.raises(ProjectionError) as caught:
            stage_what_still_changes(engines, engine, ref)
        found.append((type(caught.value), str(caught.value), caught.value.hint))
    assert found[1] == found[0]
    assert "a file changed while it was being published: k7" in found[0][1]


def stage_what_still_changes(engines: Engines, engine: TransferEngine, ref: str) -> None:
    fetched, data = engines.fetch(engine, ref, "")
    for number in range(20):
        (data / f"k{number}").write_bytes(b"y")
    plan = fetched.changes(0)
    (data / "k7").write_bytes(b"z and more")
    engine.stage(plan, engines.lake.staging(ref), data)


def test_a_refused_login_in_a_task_is_denied_as_in_this_process(
    engines: Engines, spark_session: SparkSession, lake: LakeRepository
) -> None:
    for number in range(3):
        lake.put(f"k{number}", b"x")
    ref = lake.commit()
    wrong = replace(lake.connection, secret_access_key=SecretStr("wrong"))
    stranger = Engines(replace(lake, connection=wrong), spark_session)
    # The worker itself may look at the tree, to divide it; its tasks may not.
    in_tasks = replace(stranger.spark, store=lake.objects)
    found = []
    for engine in (stranger.process, in_tasks):
        with pytest.raises(BackendDeniedError) as caught:
            stranger.fetch(engine, ref, "")
        found.append(str(caught.value))
    assert "wrong" not in found[0] + found[1]
    # What follows holds an id of the request.
    assert found[1].partition(":")[0] == found[0].partition(":")[0]


def test_each_partition_is_told_with_its_phase_and_what_it_moved(engines: Engines) -> None:
    for number in range(10):
        engines.lake.put(f"k{number}", b"%d" % number)
    ref = engines.lake.commit()

    def body(data: Path) -> None:
        (data / "k0").unlink()
        (data / "k1").write_bytes(b"changed")

    engines.outcome(engines.spark, ref, "", body)
    told = [(e.action, e.phase) for e in engines.events]
    assert {action for action, _ in told} == {"partition_done"}
    looks = [event for event in engines.events if "what" in event.details]
    assert [(event.phase, event.details) for event in looks] == [
        ("download", {"partition": "1/1", "what": "list", "found": 10}),
        ("diff", {"partition": "1/1", "what": "scan", "found": 9}),
    ]
    moves = [event for event in engines.events if event not in looks]
    down = [event.details for event in moves if event.phase == "download"]
    assert [details["partition"] for details in down] == ["1/2", "2/2"]
    assert sum(details["objects"] for details in down) == 10
    up = [event.details for event in engines.events if event.phase == "stage"]
    assert [details.get("deletes", 0) for details in up] == [1, 0]
    assert [(details["objects"], details["bytes"]) for details in up] == [(0, 0), (1, 7)]
    assert all(event.seconds is not None for event in engines.events)


@pytest.mark.slow
def test_a_tree_of_many_folders_is_listed_and_scanned_by_many_tasks(engines: Engines) -> None:
    for number in range(12):
        engines.lake.put(f"in/{number % 4}/{number}", b"x")
    ref = engines.lake.commit()
    fetched, _ = engines.fetch(engines.spark, ref, "")
    assert not fetched.changes(0)
    # Listed are the root, the folder, and the four in it; few files need no more tasks than two.
    for what, tasks in (("list", 6), ("scan", 2)):
        told = [e.details for e in engines.events if e.details.get("what") == what]
        expected = [f"{number}/{tasks}" for number in range(1, tasks + 1)]
        assert sorted(details["partition"] for details in told) == expected
        assert sum(details["found"] for details in told) == 12


def refused_body(data: Path) -> None:
    for folder in ("a", "b", "c"):
        (data / folder).mkdir()
        (data / folder / "fine").touch()
    (data / "c" / "link").symlink_to("x")
    (data / "b" / "link").symlink_to("x")
    os.mkfifo(data / "b" / "pipe")
    (data / "a" / "caf\udce9").touch()


def unnamed_body(data: Path) -> None:
    for path in ("a/caf\udce9", "b/\udcff/x", "_lakefs_actions/x", "p" * 200 + "/x"):
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).touch()
    (data / "empty-\udcff").mkdir()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (refused_body, "workspace publication does not support symlinks: b/link"),
        (unnamed_body, "4 local paths cannot be published:"),
    ],
)
def test_what_a_body_must_not_leave_in_several_units_is_the_same_error(
    engines: Engines, body: Body, words: str
) -> None:
    engines.units = 40
    ref = engines.lake.commit()
    found = [engines.outcome(e, ref, "", body) for e in (engines.process, engines.spark)]
    assert found[1] == found[0]
    assert str(found[0][-2]).startswith(words)


def test_nothing_is_left_beside_the_data_but_tables_and_no_secret_among_them(
    engines: Engines,
) -> None:
    engines.lake.put("k", b"x")
    ref = engines.lake.commit()
    fetched, data = engines.fetch(engines.spark, ref, "")
    (data / "k").write_bytes(b"y")
    plan = fetched.changes(0)
    engines.spark.stage(plan, engines.lake.staging(ref), data)
    secret = engines.lake.connection.secret_access_key.get_secret_value().encode()
    files = [path for path in data.parent.rglob("*") if path.is_file()]
    assert [path for path in files if secret in path.read_bytes()] == []
    assert {path.suffix for path in files if data not in path.parents} == {".arrow"}


def test_a_commit_that_is_not_there_is_the_same_error(engines: Engines) -> None:
    engines.lake.commit()
    for engine in (engines.process, engines.spark):
        with pytest.raises(NotFoundError):
            engines.fetch(engine, "0" * 64, "")


def test_spark_tells_suspects_as_this_process_does(spark_session: SparkSession) -> None:
    """One rule in two languages: of records with times around the ticks of both clocks."""
    second, started = 1_000_000_000, 10_000_000_000
    stamps = [started - 3 * second, started - 2 * second, *(started + n for n in range(-3, 1))]
    stamps += [started - tick + near for tick in (FINE_TICK_NS, second) for near in (-1, 0, 1)]
    records = [StatRecord(1, mtime, ctime, 7) for mtime in stamps for ctime in stamps]
    pairs = [(record, record) for record in records]
    pairs += [(records[0], records[0]._replace(**{name: 9})) for name in RECORD]
    schema = ", ".join(f"{start}{name} long" for start in ("before_", "") for name in RECORD)
    rows: list[tuple[Any, ...]] = [(f"f{n}", f"f{n}", *a, *b) for n, (a, b) in enumerate(pairs)]
    none = (None,) * len(RECORD)
    rows += [("gone", None, *none, *none), (None, "new", *none, *none)]
    rows += [("marker/", "marker/", *none, *none), (None, "folder/", *none, *none)]
    rows += [("dropped/", None, *none, *none)]
    frame = spark_session.createDataFrame(rows, f"before_path string, path string, {schema}")
    found = frame.where(may_have_changed(started)).collect()
    expected = {
        f"f{number}"
        for number, (before, now) in enumerate(pairs)
        if not is_proven_unchanged(now, before, started)
    }
    assert 4 < len(expected) < len(pairs)
    assert {row["path"] or row["before_path"] for row in found} == {
        *expected,
        *("gone", "new", "dropped/"),
    }
