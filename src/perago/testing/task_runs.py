"""Run tasks on files, with guardrails and checks and without a server: the authors' test kit."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from perago.operations.local_run import run_alone, run_in_folder, run_on_spark
from perago.protocol.events import PhaseEvent
from perago.protocol.outcome import Completed, Failed, Outcome
from perago.settings import Settings
from perago.tasks.changes import WorkspaceChanges
from perago.tasks.definition import TaskDefinition, definition_of

# The text or the bytes of files, by their paths below the task's prefix.
Files = Mapping[str, str | bytes]
Params = BaseModel | Mapping[str, Any] | None
# What the changes of a folder, which has no commits, are said to be since.
_LAST_RUN = "the last run"
# The files of a task's inputs, by their names.
Inputs = Mapping[str, Path | Files]


@dataclass(frozen=True)
class Diff:
    """What a task did to its workspace; paths are relative to it and sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @classmethod
    def between(cls, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Diff:
        """Compare the contents of two sets of files."""
        common = before.keys() & after.keys()
        return cls(
            added=tuple(sorted(after.keys() - before.keys())),
            changed=tuple(sorted(path for path in common if before[path] != after[path])),
            removed=tuple(sorted(before.keys() - after.keys())),
        )

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True)
class TaskRun:
    """How a run of a task ended, what it did to the files, and the events of its phases."""

    outcome: Outcome
    # The files as the body left them, also when the run failed.
    files: dict[str, bytes] = field(repr=False)
    diff: Diff
    events: list[PhaseEvent] = field(repr=False)
    _definition: TaskDefinition = field(repr=False)

    @property
    def failure(self) -> Failed | None:
        """Why the run failed, with code and hint; None if it completed."""
        return self.outcome if isinstance(self.outcome, Failed) else None

    @property
    def result(self) -> Any:
        """The result as the task's model; raises ``AssertionError`` if the run failed."""
        if isinstance(self.outcome, Completed):
            return self._definition.result_model.model_validate(self.outcome.output["result"])
        told = [f"{self.outcome.code or 'the task failed:'} {self.outcome.reason}"]
        told += [f"Try: {self.outcome.hint}"] if self.outcome.hint else []
        raise AssertionError("\n".join([*told, self.outcome.trace]))


class TaskWorkspace:
    """A folder on which tasks run one after the other, each as a transaction.

    A run works on a copy. Only a run that completes changes the folder, and a read-only task never
    does. ``SparkWorkspace.changes`` tells a task what changed since its last run that changed it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        # The files as each task left them, by its name.
        self._published: dict[str, dict[str, bytes]] = {}

    def put(self, files: Files) -> None:
        """Write files into the folder."""
        for path, content in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)

    @property
    def files(self) -> dict[str, bytes]:
        """The contents of all files, by path."""
        return _read(self.folder)

    def run(
        self,
        function: Callable[..., Any],
        params: Params = None,
        *,
        spark: Any = None,
        inputs: Inputs | None = None,
    ) -> TaskRun:
        """Run a task on the folder as it is now; a Spark task needs a session of a local Spark.

        ``inputs`` are those of its ``WorkspaceSpec``, each a folder or files, which are copied.
        """
        definition = _definition(function)
        events: list[PhaseEvent] = []
        with tempfile.TemporaryDirectory(prefix="perago-test-") as scratch:
            copy = Path(scratch, "data").absolute()
            shutil.copytree(self.folder, copy, symlinks=True)
            folders = _copy_inputs(definition, inputs or {}, Path(scratch, "inputs").absolute())
            given = _plain(params)
            if definition.workspace is None:
                outcome = run_alone(definition, given, Settings(), events.append)
            elif definition.kind == "file":
                outcome = run_in_folder(definition, given, copy, Settings(), events.append, folders)
            elif spark is None:
                raise ValueError(f"task {definition.name!r} is a Spark task: give spark=")
            else:
                outcome = run_on_spark(
                    definition,
                    given,
                    spark,
                    self.folder,
                    copy,
                    Settings(),
                    events.append,
                    folders,
                    self._changes(definition),
                )
            before, after = self.files, _read(copy)
            writes = definition.workspace is not None and not definition.workspace.read_only
            if isinstance(outcome, Completed) and writes:
                shutil.rmtree(self.folder)
                shutil.copytree(copy, self.folder)
                if after != before:
                    self._published[definition.name] = after
        return TaskRun(outcome, after, Diff.between(before, after), events, definition)

    def _changes(self, definition: TaskDefinition) -> WorkspaceChanges | None:
        if (seen := self._published.get(definition.name)) is None:
            return None
        found = Diff.between(seen, self.files)
        return WorkspaceChanges(found.added, found.changed, found.removed, since=_LAST_RUN)


def run_task(
    function: Callable[..., Any],
    workspace: Path | Files | None = None,
    params: Params = None,
    *,
    spark: Any = None,
    inputs: Inputs | None = None,
) -> TaskRun:
    """Run a task on a copy of a folder, or on files given by path, and change neither.

    Params, guardrails, result and what may be published are checked as in a worker. What the
    attempt does wrong is in the run that is returned; its ``result`` raises for it.
    """
    with tempfile.TemporaryDirectory(prefix="perago-test-") as folder:
        space = _copied(workspace or {}, Path(folder, "workspace"))
        return space.run(function, params, spark=spark, inputs=inputs)


def _copied(files: Path | Files, folder: Path) -> TaskWorkspace:
    space = TaskWorkspace(folder)
    if isinstance(files, Path):
        shutil.copytree(files, space.folder, dirs_exist_ok=True, symlinks=True)
    else:
        space.put(files)
    return space


def _copy_inputs(definition: TaskDefinition, given: Inputs, folder: Path) -> dict[str, Path]:
    wanted = definition.workspace.inputs if definition.workspace is not None else {}
    if given.keys() != wanted.keys():
        raise ValueError(
            f"task {definition.name!r} has the inputs {sorted(wanted)}, not {sorted(given)}: "
            "give inputs={NAME: folder or files}"
        )
    return {name: _copied(files, folder / name).folder for name, files in given.items()}


def _definition(function: Callable[..., Any]) -> TaskDefinition:
    definition = definition_of(function)
    if definition is None:
        raise TypeError(f"{function!r} is not a task: decorate it with @task")
    return definition


def _plain(params: Params) -> dict[str, Any]:
    """Params as Conductor would hold them."""
    if isinstance(params, BaseModel):
        dumped: dict[str, Any] = params.model_dump(mode="json", by_alias=True)
        return dumped
    return dict(params or {})


def _read(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
