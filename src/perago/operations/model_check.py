"""Compare what a workflow gives to a task, and takes from it, with the models of the task."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel, RootModel, ValidationError

from perago.operations.workflow_file import Json, has_expression
from perago.tasks.definition import TaskDefinition

WORKSPACE_KEYS = ("repository", "branch", "ref_type", "ref")
_OUTPUT_KEYS = ("workspace", "result")


def output_problem(path: str, definition: TaskDefinition) -> str | None:
    """Return what is wrong with a path into the output of a step, such as ``output.result.rows``.

    Returns None for a path that is there, and for one that is not into the output.
    """
    kind, *parts = re.split(r"[.\[]", path)
    if kind != "output" or not parts:
        return None
    keys = _OUTPUT_KEYS if definition.workspace is not None else _OUTPUT_KEYS[1:]
    if parts[0] not in keys:
        return f"the output of a task has {' and '.join(keys)} only"
    if parts[0] == "workspace":
        known = len(parts) == 1 or parts[1] in (*WORKSPACE_KEYS, "refType")
        return None if known else f"a workspace has {', '.join(WORKSPACE_KEYS)} only"
    names = _result_names(definition.result_model)
    if len(parts) == 1 or names is None or parts[1] in names:
        return None
    near = nearest(parts[1], names)
    return f"the result of {definition.name!r} has no {parts[1]!r}{near}"


def _result_names(model: type[BaseModel]) -> list[str] | None:
    """Return the keys of a result; None where any may be there."""
    if issubclass(model, RootModel) or model.model_config.get("extra") == "allow":
        return None
    fields = {**model.model_fields, **model.model_computed_fields}
    return [
        getattr(item, "serialization_alias", None) or getattr(item, "alias", None) or name
        for name, item in fields.items()
    ]


def params_problems(params: Json, model: type[BaseModel]) -> Iterator[str]:
    """Yield what does not fit the model, as far as it does not depend on an expression."""
    if issubclass(model, RootModel):
        return
    names = _param_names(model)
    # As an attempt does: a model that ignores what it does not know says so itself.
    if model.model_config.get("extra") not in {"allow", "ignore"}:
        for key in params:
            if key not in names:
                yield f"{model.__name__} has no field {key!r}{nearest(key, names)}"
    try:
        model.model_validate(params)
    except ValidationError as error:
        for item in error.errors(include_input=False, include_url=False, include_context=False):
            # The unknown keys were named above, with the nearest that is known.
            if item["type"] != "extra_forbidden" and not _depends(params, item["loc"]):
                where = ".".join(map(str, item["loc"])) or "value"
                yield f"{where}: {item['msg']}"
    except Exception as error:  # noqa: BLE001  a validator of the author's may raise anything
        if not has_expression(params):
            yield f"{model.__name__} raised {type(error).__name__}"


def _param_names(model: type[BaseModel]) -> list[str]:
    names: list[str] = []
    by_name = model.model_config.get("validate_by_name") or model.model_config.get(
        "populate_by_name"
    )
    for name, item in model.model_fields.items():
        alias = item.validation_alias or item.alias
        if alias is None or by_name:
            names.append(name)
        if isinstance(alias, str):
            names.append(alias)
        elif alias is not None:  # a path or a choice of names
            choices = getattr(alias, "choices", [alias])
            names += [str(getattr(choice, "path", [choice])[0]) for choice in choices]
    return names


def _depends(params: Any, place: Sequence[Any]) -> bool:
    """Return whether the value at a place, or a part of it, is put in at run time."""
    value = params
    for part in place:
        if has_expression(value) and not isinstance(value, dict | list):
            return True
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            # Missing, or below a name that only the model knows: the whole decides.
            return isinstance(value, str) and has_expression(value)
    return has_expression(value)


def nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
