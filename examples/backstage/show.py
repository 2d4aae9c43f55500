"""What the demonstration prints: a worker's log, attempt by attempt, and a branch's history."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any

from backstage.servers import BRANCH, RETRY_COUNT, Conductor, Lake

WIDTH = 96
_QUICK_SECONDS = 0.1
_INDENT = " " * 6
# How the changes of a diff are called: a file task counts what it must move, LakeFS the rest.
_CHANGES = {
    "added": "added",
    "changed": "changed",
    "removed": "removed",
    "uploads": "to upload",
    "deletes": "to delete",
    "unchanged": "unchanged",
    "leftovers": "left over by Spark and cleared",
}
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}


def say(text: str = "", style: str = "") -> None:
    """Print one line, at once; in colour on a terminal that wants it."""
    print(styled(text, style), flush=True)


def styled(text: str, style: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain or not style else f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def title(text: str) -> None:
    say()
    say(f"── {text} ".ljust(WIDTH, "─"), "bold")


def short(ref: str) -> str:
    """As much of a commit id as a person compares."""
    return ref[:10]


def size(number: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class Show:
    """Tells the lines of a worker's log to a person."""

    def __init__(self, lake: Lake, conductor: Conductor) -> None:
        self._lake = lake
        self._conductor = conductor
        self._input = ""
        self._claimed_at = datetime.now(UTC)
        self._quick: list[str] = []
        self.in_attempt = False

    def tell(self, line: Mapping[str, Any]) -> None:
        """Print what a log line is about; most are about nothing to see here."""
        match line["action"]:
            case "attempt_claimed":
                self._claimed(line)
            case "phase_ended" | "phase_failed":
                self._phase(line)
            case "publish_planned":
                self._planned(line)
            case "replaced_commit_tagged":
                tag = line["tag"].removesuffix(line["commit"]) + short(line["commit"])
                self._step("", None, f"{short(line['commit'])} is kept by a tag: {tag}…")
            case "attempt_completed":
                self._completed(line)
            case "attempt_failed" | "attempt_stale" | "result_not_delivered":
                self._flush()
                say(f"{_INDENT}{line['action']}: {line.get('reason', '')}", "red")
                self.in_attempt = False

    def _claimed(self, line: Mapping[str, Any]) -> None:
        task = self._conductor.task(line["task_id"])
        self._input = task["inputData"]["workspace"]["ref"]
        self._claimed_at = datetime.fromisoformat(line["timestamp"])
        self._quick.clear()
        self.in_attempt = True
        about = task["workflowTask"]["taskDefinition"]["description"]
        say()
        say(f"   {line['task']}, attempt {line['retry'] + 1}, from {short(self._input)}", "blue")
        say(f"{_INDENT}{about}", "dim")

    def _phase(self, line: Mapping[str, Any]) -> None:
        phase, seconds = line["phase"], line["seconds"]
        if phase == "publish" and "ref" in line:
            self._step(phase, seconds, line["how"])
            self._published(line["ref"])
            if line["abandoned"]:
                off = short(line["abandoned"])
                say(f"{_INDENT}{off} is off the branch; no commit builds on it", "yellow")
        elif facts := _facts(line):
            self._step(phase, seconds, facts)
        elif seconds >= _QUICK_SECONDS:
            self._step(phase, seconds)
        else:
            self._quick.append(f"{phase} {seconds:.2f} s")

    def _planned(self, line: Mapping[str, Any]) -> None:
        """What the publish fence found, and what follows from it."""
        at_input = line["head"] == self._input
        where = "the input" if at_input else f"{short(line['head'])}, one commit past the input"
        self._step("publish_fence", None, f"{BRANCH} is at {where}: {line['plan']}")

    def _published(self, ref: str) -> None:
        found = self._lake.difference(self._input, ref)
        removed = f", {found.removed:,} removed" if found.removed else ""
        what = f"{counted(found.objects, 'object')}, {size(found.size)}{removed}"
        say(f"{_INDENT}{short(self._input)} → {short(ref)}   {what}", "green")

    def _completed(self, line: Mapping[str, Any]) -> None:
        output = self._conductor.task(line["task_id"])["outputData"]
        self._flush()
        if output["workspace"]["ref"] == self._input:
            say(f"{_INDENT}{short(self._input)} stays: nothing is published", "green")
        seconds = (datetime.fromisoformat(line["timestamp"]) - self._claimed_at).total_seconds()
        self._step("COMPLETED", seconds, "since it was claimed")
        result = output["result"]
        charts = [value for value in result.values() if isinstance(value, list)]
        self._wrapped("; ".join(f"{k} {_value(v)}" for k, v in result.items() if v not in charts))
        for chart in charts:
            say()
            for row in chart:
                say(_INDENT + row)
        self.in_attempt = False

    def _step(self, name: str, seconds: float | None, facts: str = "") -> None:
        self._flush()
        took = f"{seconds:6.2f} s" if seconds is not None else " " * 8
        say(f"{_INDENT}{name:<16}{took}   {facts}".rstrip())

    def _flush(self) -> None:
        """The phases that were over in no time share a line."""
        if self._quick:
            self._wrapped(" · ".join(self._quick), "dim")
            self._quick.clear()

    def _wrapped(self, text: str, style: str = "") -> None:
        for part in wrap(text, WIDTH - len(_INDENT), break_on_hyphens=False):
            say(_INDENT + part, style)


def _facts(line: Mapping[str, Any]) -> str:
    """What a phase has to say about itself, other than how long it took."""
    if "error" in line:
        return f"failed: {line['error']}"
    if line["phase"] == "download":
        return f"{counted(line['objects'], 'object')}, {size(line['bytes'])}"
    if line["phase"] == "stage":
        return f"{counted(line['uploads'], 'object')}, {size(line['upload_bytes'])}"
    if line["phase"] == "diff":
        found = [f"{line[name]:,} {said}" for name, said in _CHANGES.items() if line.get(name)]
        return ", ".join(found) or "no change"
    return ""


def _value(value: Any) -> str:
    """A field of a task's result."""
    if isinstance(value, dict) and value and all(isinstance(it, bool) for it in value.values()):
        failed = [name for name, holds in value.items() if not holds]
        held = f"{len(value) - len(failed)} of {len(value)} hold"
        return f"{held} (not: {', '.join(failed)})" if failed else held
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_value(it)}" for name, it in value.items()) + ")"
    return f"{value:,}" if isinstance(value, int) else str(value)


def show_history(lake: Lake) -> None:
    """The branch's commits, the newest first; what was replaced stands beside its place."""
    replaced = {
        commit.parents[0]: (tag, commit)
        for tag, ref in lake.tags().items()
        if (commit := lake.commit(ref)).parents
    }
    for commit in lake.history():
        parent = commit.parents[0] if commit.parents else ""
        tag, abandoned = replaced.pop(parent, ("", None))
        note = f"replaced {short(abandoned.id)}" if abandoned else ""
        say(f"   ●   {short(commit.id)}  {_who(commit):<46}{note}".rstrip())
        if abandoned:
            say(
                f"   │ ○ {short(abandoned.id)}  {_who(abandoned):<46}abandoned, kept by its tag",
                "dim",
            )
            say(f"   │   {tag}", "dim")


def _who(commit: Any) -> str:
    """The commit's message, made short, and which attempt made it."""
    message, _, workflow = str(commit.message).partition(" of workflow ")
    retry = (commit.metadata or {}).get(RETRY_COUNT)
    made = f", attempt {int(retry) + 1}" if retry is not None else ""
    return f"{message} of {workflow[:8]}{made}" if workflow else message
