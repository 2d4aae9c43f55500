"""The checks on both sides of a body: params before it, guardrails around it, result after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from perago.errors import BodyError, GuardrailViolation, InputError, ResultError
from perago.protocol.job import Job, Ports
from perago.protocol.workspace import describe_validation


@dataclass(frozen=True, slots=True)
class Executed:
    """The body returned a result that fits its model and Conductor."""

    result: BaseModel
    result_payload: Any


def validate_params(job: Job, params: dict[str, Any]) -> BaseModel:
    try:
        return job.params_model.model_validate(params)
    except ValidationError as error:
        raise InputError(f"params: {describe_validation(error)}") from None


def call_body(call: Callable[[], Any], what: str = "task body") -> Any:
    """Run an author's code; whatever it raises must end the attempt and not the worker."""
    try:
        return call()
    except (Exception, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise BodyError(f"the {what} called sys.exit({error.code!r})") from error
    except BaseException as error:  # asyncio.CancelledError, for one
        raise BodyError(f"the {what} raised {type(error).__name__}: {error}") from error


def check_guardrails(
    check: Callable[[Path], None], data: Path, violation: type[GuardrailViolation]
) -> None:
    """Only a violation is a guardrail failure; anything else a guardrail raises is a failure."""
    try:
        call_body(lambda: check(data), "guardrail")
    except GuardrailViolation as error:
        raise violation(str(error)) from error


def check_result(job: Job, value: Any) -> Executed:
    try:
        result = job.result_model.model_validate(value)
        payload = result.model_dump(mode="json", by_alias=True, warnings="error")
    except ValidationError as error:
        raise ResultError(f"the result does not fit: {describe_validation(error)}") from None
    except ValueError as error:
        raise ResultError(f"the result cannot be written as JSON: {error}") from error
    return Executed(result, payload)


def checked_output(ports: Ports, payload: dict[str, Any]) -> dict[str, Any]:
    try:
        size = len(json.dumps(payload, allow_nan=False).encode())
    except ValueError as error:
        raise ResultError(f"the result cannot be written as JSON: {error}") from error
    if size > ports.policy.max_output_bytes:
        raise ResultError(
            f"the output has {size} bytes, more than the {ports.policy.max_output_bytes} allowed"
        )
    return payload
