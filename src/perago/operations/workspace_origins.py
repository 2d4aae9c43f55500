"""Trace the workspace that a step takes to its branch, and to the step that published it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from perago.names import COMMIT_ID
from perago.operations.model_check import WORKSPACE_KEYS
from perago.operations.workflow_file import Json, has_expression, whole_expression

_COMMIT = re.compile(COMMIT_ID)

# The repository and the branch, as expressions or as they are written.
BranchKey = tuple[str, str]
# Takes the step and what is to be said about it.
Say = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Origin:
    """A workspace: its branch, and the step that published the commit; empty for the start."""

    key: BranchKey
    writer: str = ""


class Origins:
    """The workspaces that the steps of a workflow take and leave."""

    def __init__(self, references: Collection[str], error: Say, warn: Say) -> None:
        self._references = references
        self._error = error
        self._warn = warn
        # The workspace that each step leaves, as far as the steps were walked.
        self.outputs: dict[str, Origin] = {}

    def trace(self, reference: str, value: Any, what: str = "workspace") -> Origin | None:
        """Return where a workspace of a step comes from; None, and a word about it, if unknown."""
        if isinstance(value, dict):
            return self._trace_object(reference, value, what)
        expression = whole_expression(value)
        if expression is None:
            self._error(
                reference,
                f'{what} must be "${{workflow.input.workspace}}", "${{STEP.output.workspace}}", or '
                f"an object with {', '.join(WORKSPACE_KEYS)}",
            )
            return None
        parts = expression.split(".")
        if parts[:2] == ["workflow", "input"] and len(parts) > 2:
            return Origin((f"{expression}.repository", f"{expression}.branch"))
        if parts[1:] == ["output", "workspace"]:
            if parts[0] in self._references and parts[0] not in self.outputs:
                self._warn(reference, f"where ${{{expression}}} comes from is not followed")
            return self.outputs.get(parts[0])
        self._warn(reference, f"where ${{{expression}}} comes from is not followed")
        return None

    def _trace_object(self, reference: str, value: Json, what: str) -> Origin | None:
        given = {"ref_type" if key == "refType" else key: item for key, item in value.items()}
        missing = [key for key in WORKSPACE_KEYS if key not in given]
        extra = [key for key in given if key not in WORKSPACE_KEYS]
        if missing or extra:
            text = f"missing {', '.join(missing)}" if missing else f"unexpected {', '.join(extra)}"
            self._error(reference, f"{what}: {text}")
            return None
        if not has_expression(given["ref_type"]) and given["ref_type"] != "commit":
            self._error(reference, f'{what}: "ref_type" must be "commit"')
        ref = given["ref"]
        if not has_expression(ref) and not (isinstance(ref, str) and _COMMIT.fullmatch(ref)):
            self._error(
                reference,
                f"{what}: ref must be the full id of a commit (64 hex digits); "
                "`perago workflow run --repository R` fills in that of HEAD",
            )
        key = (self._name(given["repository"], 0), self._name(given["branch"], 1))
        source = (whole_expression(ref) or "").split(".")
        if source[1:] == ["output", "workspace", "ref"] and source[0] in self.outputs:
            return Origin(key, self.outputs[source[0]].writer)
        return Origin(key)

    def _name(self, value: Any, index: Literal[0, 1]) -> str:
        """Return a repository or branch as it is written, or that of the step it comes from."""
        expression = whole_expression(value)
        if expression is None:
            return str(value)
        reference, _, rest = expression.partition(".")
        if rest.startswith("output.workspace.") and reference in self.outputs:
            return self.outputs[reference].key[index]
        return expression
