"""A first task: count the words of every text in a workspace and write the counts back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, Field

from perago import WorkspaceSpec, require_file, require_glob, task


class CountParams(BaseModel):
    """Which words to leave out."""

    shortest: int = Field(1, ge=1, description="Words with fewer letters are not counted.")


class CountResult(BaseModel):
    """What was found."""

    texts: int
    words: int
    most_common: list[str]


@task(
    name="word_count",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="library",
        pre=[require_glob("texts/*.txt")],
        post=[require_file("counts.json")],
    ),
)
def word_count(workspace: Path, params: CountParams) -> CountResult:
    """Count the words of every text."""
    counts: Counter[str] = Counter()
    texts = sorted(workspace.glob("texts/*.txt"))
    for text in texts:
        words = text.read_text(encoding="utf-8").lower().split()
        counts.update(word for word in words if len(word) >= params.shortest)
    target = workspace / "counts.json"
    target.write_text(json.dumps(dict(counts.most_common()), indent=2), encoding="utf-8")
    return CountResult(
        texts=len(texts),
        words=counts.total(),
        most_common=[word for word, _ in counts.most_common(3)],
    )
