"""Build the Conductor TaskDef of a task: a plain dict, in a stable order."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from perago.names import COMMIT_ID
from perago.tasks.definition import TaskDefinition
from perago.tasks.spec import InputSpec

_WORKSPACE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "repository": {"type": "string", "minLength": 1},
        "branch": {"type": "string", "minLength": 1},
        "ref_type": {"const": "commit"},
        "refType": {"const": "commit"},
        "ref": {"type": "string", "pattern": f"^{COMMIT_ID}$"},
    },
    "required": ["repository", "branch", "ref"],
    "oneOf": [{"required": ["ref_type"]}, {"required": ["refType"]}],
    "additionalProperties": False,
}


def build_taskdef(definition: TaskDefinition) -> dict[str, Any]:
    """Build the TaskDef that ``perago extract`` prints and ``perago register`` sends."""
    retry, timeout = definition.controls.retry, definition.controls.timeout
    limits = definition.controls.limits
    with_workspace = definition.workspace is not None
    inputs = _input_properties(definition, {})
    taskdef: dict[str, Any] = {
        "name": definition.name,
        "description": definition.description,
        "ownerEmail": definition.owner_email,
        "inputKeys": list(inputs),
        "outputKeys": ["workspace", "result"] if with_workspace else ["result"],
        "retryCount": retry.count,
        "retryLogic": retry.logic,
        "retryDelaySeconds": retry.delay_seconds,
        "backoffScaleFactor": retry.backoff_scale_factor,
        "timeoutSeconds": timeout.total_seconds,
        "timeoutPolicy": timeout.action,
        "responseTimeoutSeconds": timeout.response_seconds,
        "pollTimeoutSeconds": timeout.poll_seconds,
        "inputSchema": _schema(definition, "input", "params", definition.params_model),
        "outputSchema": _schema(definition, "output", "result", definition.result_model),
        "enforceSchema": False,
    }
    if limits.concurrent is not None:
        taskdef["concurrentExecLimit"] = limits.concurrent
    if limits.rate is not None:
        taskdef["rateLimitPerFrequency"] = limits.rate
        taskdef["rateLimitFrequencyInSeconds"] = limits.rate_window_seconds
    return taskdef


def taskdef_warnings(definition: TaskDefinition) -> list[str]:
    """Warn about a TaskDef that is valid but likely to fail."""
    budget, timeout = definition.controls.publish_budget, definition.controls.timeout
    warnings: list[str] = []
    if budget is not None and timeout.response_seconds < budget.total_seconds:
        warnings.append(
            f"task {definition.name!r}: responseTimeoutSeconds is {timeout.response_seconds}, "
            f"shorter than the publish budget of {budget.total_seconds:g} s; it must cover the "
            "whole attempt"
        )
    for name in ("body_seconds", "attempt_seconds"):
        deadline = getattr(timeout, name)
        if deadline is not None and 0 < timeout.total_seconds < deadline:
            warnings.append(
                f"task {definition.name!r}: {name} is {deadline:g}, longer than timeoutSeconds, "
                f"{timeout.total_seconds}: Conductor ends the attempt first"
            )
    return warnings


def contract_problems(definition: TaskDefinition) -> list[str]:
    """Explain why the models of a task have no JSON Schema.

    To be called after the import of the module: at decoration, a model may refer to a class that is
    defined further down.
    """
    problems: list[str] = []
    for key, side, model in (
        ("params", "input", definition.params_model),
        ("result", "output", definition.result_model),
    ):
        try:
            schema = _model_schema(model, side)
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            why = " ".join(str(error.message).split())
            problems.append(f"{key} model {model.__name__} has no JSON Schema: {why}")
            continue
        if side == "input" and not _takes_objects(schema):
            problems.append(
                f"{key} model {model.__name__} does not take a JSON object: "
                "write a model with fields"
            )
    return problems


class _StableSchema(GenerateJsonSchema):
    """Writes the defaults of sets in the same order in every process."""

    def encode_default(self, dft: Any) -> Any:
        return _with_sorted_sets(dft, super().encode_default(dft))


def _with_sorted_sets(value: Any, encoded: Any) -> Any:
    """Sort the sets of a default in its JSON, where a set is a list like any other."""
    if isinstance(value, set | frozenset) and isinstance(encoded, list):
        return sorted(encoded, key=repr)
    if isinstance(value, BaseModel) and isinstance(encoded, dict):
        fields = dict(value)
        return {key: _with_sorted_sets(fields.get(key), it) for key, it in encoded.items()}
    if isinstance(value, dict) and isinstance(encoded, dict) and len(value) == len(encoded):
        pairs = zip(value.values(), encoded.items(), strict=True)
        return {key: _with_sorted_sets(item, shown) for item, (key, shown) in pairs}
    if isinstance(value, list | tuple) and isinstance(encoded, list) and len(value) == len(encoded):
        return [_with_sorted_sets(*pair) for pair in zip(value, encoded, strict=True)]
    return encoded


def _model_schema(model: type[BaseModel], side: str) -> dict[str, Any]:
    mode: Any = "validation" if side == "input" else "serialization"
    return model.model_json_schema(mode=mode, schema_generator=_StableSchema)


def _takes_objects(schema: dict[str, Any]) -> bool:
    """Whether a model takes a JSON object; a root model may take a list or a number."""
    reference = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    root = schema.get("$defs", {}).get(reference, schema)
    return bool(root.get("type", "object") == "object")


def _input_properties(definition: TaskDefinition, params: dict[str, Any]) -> dict[str, Any]:
    """The schemas of the keys of a task's input."""
    spec = definition.workspace
    if spec is None:
        return {"params": params}
    properties = {"workspace": _WORKSPACE_SCHEMA, "params": params}
    if spec.inputs:
        properties["inputs"] = {
            "type": "object",
            "properties": {name: _input_schema(it) for name, it in spec.inputs.items()},
            "required": list(spec.inputs),
            "additionalProperties": False,
        }
    return properties


def _input_schema(spec: InputSpec) -> dict[str, Any]:
    if spec.repository is None:
        return _WORKSPACE_SCHEMA
    properties = {**_WORKSPACE_SCHEMA["properties"], "repository": {"const": spec.repository}}
    return {**_WORKSPACE_SCHEMA, "properties": properties}


def _schema(
    definition: TaskDefinition, side: str, key: str, model: type[BaseModel]
) -> dict[str, Any]:
    """Build the JSON Schema of one side of the contract.

    The model's ``$defs`` move to the top, because references start at the document's root.
    """
    schema = _model_schema(model, side)
    defs = schema.pop("$defs", {})
    with_workspace = definition.workspace is not None
    properties = {"workspace": _WORKSPACE_SCHEMA, key: schema} if with_workspace else {key: schema}
    if side == "input":
        properties = _input_properties(definition, schema)
    data: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    if defs:
        data["$defs"] = dict(sorted(defs.items()))
    return {"name": f"{definition.name}.{side}", "version": 1, "type": "JSON", "data": data}
