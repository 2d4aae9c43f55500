"""The steps of a workflow as a graph: where each box is, and what leads to what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perago.conductor.inspection import TaskView, WorkflowView
from perago.text import shorten

BOX_WIDTH = 200
BOX_HEIGHT = 52
_GAP = 28
_MARGIN = 6
# A definition may be of any size; a graph that is too large to read is not drawn.
MOST_BOXES = 200
_DEEPEST = 20
_LONGEST_NAME = 24


@dataclass(frozen=True, slots=True)
class Box:
    """A step; ``attempts`` are its attempts of all iterations, oldest first."""

    reference: str
    label: str
    kind: str
    attempts: tuple[TaskView, ...]
    x: float
    y: float

    @property
    def status(self) -> str | None:
        return self.attempts[-1].status if self.attempts else None

    @property
    def center(self) -> float:
        return self.x + BOX_WIDTH / 2

    @property
    def bottom(self) -> float:
        return self.y + BOX_HEIGHT


@dataclass(frozen=True, slots=True)
class Connector:
    """Leads from the bottom of one box to the top of another."""

    x1: float
    y1: float
    x2: float
    y2: float

    @property
    def path(self) -> str:
        middle = (self.y1 + self.y2) / 2
        curve = f"{self.x1:g} {middle:g} {self.x2:g} {middle:g} {self.x2:g} {self.y2:g}"
        return f"M{self.x1:g} {self.y1:g} C{curve}"


@dataclass(frozen=True, slots=True)
class StepGraph:
    """Boxes and lines on a canvas."""

    boxes: tuple[Box, ...]
    lines: tuple[Connector, ...]
    width: float
    height: float
    # Whether the definition has more steps than are drawn.
    cut: bool


@dataclass(slots=True)
class _Step:
    """A node of the definition: its branches run side by side before the next step."""

    reference: str
    name: str
    kind: str
    branches: list[list[_Step]] = field(default_factory=list)


def draw(workflow: WorkflowView) -> StepGraph:
    """Lay out the steps of a workflow from top to bottom."""
    attempts: dict[str, list[TaskView]] = {}
    for task in workflow.tasks:
        attempts.setdefault(_base(task), []).append(task)
    counted = [0]
    steps = list(_steps(workflow.definition.get("tasks"), counted, 0))
    if not steps:
        # A definition that cannot be read: the attempts themselves, in their order.
        steps = [_Step(name, tried[0].task_name, tried[0].kind) for name, tried in attempts.items()]
        steps = steps[:MOST_BOXES]
    drawing = _Drawing({name: tuple(tried) for name, tried in attempts.items()})
    width = max(_width(steps), BOX_WIDTH)
    bottom, _ = drawing.column(steps, _MARGIN + width / 2, _MARGIN, [])
    return StepGraph(
        tuple(drawing.boxes),
        tuple(drawing.lines),
        width + 2 * _MARGIN,
        bottom - _GAP + _MARGIN,
        counted[0] > MOST_BOXES,
    )


def _base(task: TaskView) -> str:
    """The reference as the definition has it: iterations of a loop add ``__N``."""
    name, iteration = task.logical.reference_name, task.logical.iteration
    return name.removesuffix(f"__{iteration}") if iteration else name


def _steps(tasks: Any, counted: list[int], depth: int) -> Iterator[_Step]:
    if not isinstance(tasks, list) or depth > _DEEPEST:
        return
    for task in tasks:
        if not isinstance(task, Mapping):
            continue
        counted[0] += 1
        if counted[0] > MOST_BOXES:
            return
        step = _Step(
            str(task.get("taskReferenceName") or ""),
            str(task.get("name") or ""),
            str(task.get("type") or "SIMPLE"),
        )
        for branch in _branches(task):
            step.branches.append(list(_steps(branch, counted, depth + 1)))
        yield step


def _branches(task: Mapping[str, Any]) -> Iterator[Any]:
    forks = task.get("forkTasks")
    yield from forks if isinstance(forks, list) else ()
    cases = task.get("decisionCases")
    yield from cases.values() if isinstance(cases, Mapping) else ()
    for key in ("defaultCase", "loopOver"):
        if isinstance(branch := task.get(key), list) and branch:
            yield branch


def _width(steps: Sequence[_Step]) -> float:
    widest = 0.0
    for step in steps:
        branches = [_width(branch) or BOX_WIDTH for branch in step.branches]
        inner = sum(branches) + _GAP * (len(branches) - 1) if branches else 0.0
        widest = max(widest, BOX_WIDTH, inner)
    return widest


@dataclass(slots=True)
class _Drawing:
    attempts: dict[str, tuple[TaskView, ...]]
    boxes: list[Box] = field(default_factory=list)
    lines: list[Connector] = field(default_factory=list)

    def column(
        self, steps: Sequence[_Step], center: float, top: float, before: list[Box]
    ) -> tuple[float, list[Box]]:
        """Draw steps below each other; return where they end, and the boxes that lead on."""
        for step in steps:
            box = Box(
                step.reference,
                shorten(step.reference or step.name, _LONGEST_NAME),
                step.kind,
                self.attempts.get(step.reference, ()),
                center - BOX_WIDTH / 2,
                top,
            )
            self.boxes.append(box)
            self.lines += [Connector(it.center, it.bottom, box.center, box.y) for it in before]
            top += BOX_HEIGHT + _GAP
            before = [box]
            if step.branches:
                top, before = self._side_by_side(step.branches, center, top, box)
        return top, before

    def _side_by_side(
        self, branches: Sequence[Sequence[_Step]], center: float, top: float, parent: Box
    ) -> tuple[float, list[Box]]:
        widths = [_width(branch) or BOX_WIDTH for branch in branches]
        left = center - (sum(widths) + _GAP * (len(widths) - 1)) / 2
        lowest, ends = top, []
        for branch, width in zip(branches, widths, strict=True):
            bottom, last = self.column(branch, left + width / 2, top, [parent])
            lowest = max(lowest, bottom)
            ends += last
            left += width + _GAP
        return lowest, ends
