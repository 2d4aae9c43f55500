"""Try what a worker's LakeFS user may do, on branches and a tag of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from perago.errors import BackendError
from perago.lakefs.control import LakeFSControl
from perago.lakefs.garbage import LakeFSGarbage
from perago.operations.short_lived import short_lived_branch
from perago.protocol.workspace import StagedWorkspace, StagingBranch

_TIMEOUT_SECONDS = 30.0
_MESSAGE = "perago: try the rights of this user"


@dataclass(frozen=True, slots=True)
class Right:
    """One right that was tried; without an error, the user has it."""

    name: str
    # LakeFS's names for what is needed.
    permissions: str
    error: BackendError | None = None

    @property
    def hint(self) -> str:
        return f"Give the worker's LakeFS user {self.permissions} (docs/cli.md#perago-doctor)."


def try_rights(lake: LakeFSControl, garbage: LakeFSGarbage, repository: str) -> Iterator[Right]:
    """Try each right in turn; what needs one that is missing is not tried."""
    return _Trial(lake, garbage, repository).run()


class _Trial:
    def __init__(self, lake: LakeFSControl, garbage: LakeFSGarbage, repository: str) -> None:
        self._lake = lake
        self._garbage = garbage
        self._repository = repository
        self._name = f"perago-doctor-{uuid.uuid4().hex}"
        self._source = StagingBranch(repository, f"{self._name}-source")
        self._target = StagingBranch(repository, f"{self._name}-target")
        self._head = ""
        self._staged: StagedWorkspace | None = None
        self._left: list[BackendError] = []

    def run(self) -> Iterator[Right]:
        """Yield each right; remove what was made, and say whether that was possible."""
        made = False
        with ExitStack() as branches:
            for right, attempt in self._steps(branches):
                error = _error_of(attempt)
                yield right if error is None else Right(right.name, right.permissions, error)
                if error is not None:
                    break
                made = made or right.name == "create branches"
        if made:
            error = self._left[0] if self._left else None
            yield Right("delete branches and tags", "fs:DeleteBranch and fs:DeleteTag", error)

    def _steps(self, branches: ExitStack) -> list[tuple[Right, Callable[[], object]]]:
        def create() -> None:
            for branch in (self._source, self._target):
                branches.enter_context(
                    short_lived_branch(
                        self._lake, self._repository, branch.branch, self._head, self._report
                    )
                )

        return [
            (Right("read branches and commits", "fs:ReadBranch and fs:ReadCommit"), self._look),
            (Right("create branches", "fs:CreateBranch"), create),
            (Right("write objects", "fs:WriteObject"), self._write),
            (Right("commit", "fs:CreateCommit"), self._commit),
            (Right("merge", "fs:CreateCommit on the target"), self._merge),
            (Right("relocate branches", "fs:RevertBranch"), self._relocate),
            (Right("create tags", "fs:CreateTag"), lambda: self._tag(branches)),
            (Right("read the runs of hooks", "ci:ReadAction"), self._read_runs),
        ]

    def _look(self) -> None:
        branch = self._lake.default_branch(self._repository)
        self._head = self._lake.get_head(self._repository, branch).id

    def _write(self) -> None:
        self._lake.write_small(self._source, f"{self._name}.txt", b"perago doctor\n")

    def _commit(self) -> None:
        self._staged = self._lake.commit(self._source, _MESSAGE, {})

    def _merge(self) -> None:
        assert self._staged is not None  # noqa: S101  the step before made it
        self._lake.merge(
            self._staged,
            self._target.branch,
            message=_MESSAGE,
            metadata={},
            timeout=_TIMEOUT_SECONDS,
        )

    def _relocate(self) -> None:
        self._lake.relocate(self._source, self._target.branch, timeout=_TIMEOUT_SECONDS)

    def _tag(self, removal: ExitStack) -> None:
        removal.callback(self._delete_tag)
        self._lake.tag(self._repository, self._name, self._head)

    def _read_runs(self) -> None:
        self._lake.has_action_runs(self._repository, self._target.branch)

    def _delete_tag(self) -> None:
        try:
            self._garbage.delete_tag(self._repository, self._name, self._head)
        except BackendError as error:
            self._left.append(error)

    def _report(self, branch: str, reason: str) -> None:
        self._left.append(BackendError(f"branch {branch!r} is left, delete it by hand: {reason}"))


def _error_of(attempt: Callable[[], object]) -> BackendError | None:
    try:
        attempt()
    except BackendError as error:
        return error
    return None
