"""Attachments: values computed from a bundle's metadata and sent along with a notification."""

import logging
from collections.abc import Mapping
from typing import Any

from pipelines.limits import ATTACHMENTS_BYTES
from pipelines.queries import jmes
from pipelines.queries.payloads import dump
from storage.errors import Invalid, StoreError

log = logging.getLogger(__name__)

ERRORS = "_errors"
JMESPATH = "jmespath"

Attachments = Mapping[str, Mapping[str, str]]


def check(attachments: Attachments) -> None:
    """Invalid for a reserved name, an unknown type, an expression that does not compile."""
    for name, attachment in attachments.items():
        where = f"/attachments/{name}"
        if name.startswith("_"):
            detail = "Names must not start with an underscore."
            raise Invalid(
                f"'{name}': {detail}", code="invalid_attachment_name", errors={where: [detail]}
            )
        if attachment.get("type") != JMESPATH:
            raise _refused(where, "The type must be jmespath.")
        _check_expression(where, attachment.get("expression", ""))


def _check_expression(where: str, expression: str) -> None:
    try:
        jmes.validate(expression)
    except Invalid as error:
        raise _refused(where, error.detail) from error


def _refused(where: str, detail: str) -> Invalid:
    return Invalid(detail, code="invalid_attachment_expression", errors={where: [detail]})


def evaluate(
    attachments: Attachments,
    document: Any,
    *,
    steps: int = jmes.MAX_STEPS,
    budget: jmes.Budget | None = None,
) -> dict[str, Any]:
    """The value of every attachment, and under `_errors` what went wrong.

    All of one subscription share the steps: many hostile ones cost no more than one. A budget
    given instead of them tells what was spent; only what its watch raises is raised.
    """
    try:
        values = _values(attachments, document, budget or jmes.Budget(steps))
        size = len(dump(values).encode())
    except StoreError:
        raise
    except Exception as error:
        log.warning("attachments failed: %s: %.300s", type(error).__name__, error)
        return {ERRORS: f"The attachments could not be processed ({type(error).__name__})."}
    if size > ATTACHMENTS_BYTES:
        return {ERRORS: f"The attachments are too large ({size} > {ATTACHMENTS_BYTES} bytes)."}
    return values


def _values(attachments: Attachments, document: Any, budget: jmes.Budget) -> dict[str, Any]:
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, attachment in attachments.items():
        try:
            values[name] = _value(attachment["expression"], document, budget)
        except jmes.Failed as error:
            errors[name] = str(error)
    return values | ({ERRORS: errors} if errors else {})


def _value(expression: str, document: Any, budget: jmes.Budget) -> Any:
    """The result, known to be JSON of bearable size."""
    try:
        compiled = jmes.compiled(expression)
    except Invalid as error:
        raise jmes.Failed(error.detail) from error
    value = compiled.search(document, budget)
    budget.pay_for(value)
    try:
        dump(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise jmes.Failed("The result is not JSON.") from error
    return value
