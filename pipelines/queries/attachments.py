"""Attachments: values computed from a bundle's metadata and sent along with a notification."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pipelines.limits import ATTACHMENTS_BYTES
from pipelines.queries import jmes
from pipelines.queries.payloads import dump
from pipelines.queries.spending import FIRST, GROWTH
from storage.errors import Invalid, StoreError

log = logging.getLogger(__name__)

ERRORS = "_errors"
JMESPATH = "jmespath"
TOGETHER = "The attachments together take more steps on one event than allowed."

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
    watch: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """The value of every attachment, and under `_errors` what went wrong.

    Each may take `steps` of its own. All are tried with few steps first, then those that need more
    with more, so that an expensive one never leaves too few to a cheap one. `budget` bounds all of
    them together, and tells what was spent. Only the StoreErrors that `watch` raises are raised.
    """
    together = budget or jmes.Budget(steps * len(attachments))
    evaluation = _Evaluation(document, steps, together, watch)
    try:
        evaluation.run(attachments)
        size = evaluation.size()
    except StoreError:
        raise
    except Exception as error:
        log.warning("attachments failed: %s: %.300s", type(error).__name__, error)
        return {ERRORS: f"The attachments could not be processed ({type(error).__name__})."}
    if size > ATTACHMENTS_BYTES:
        return {ERRORS: f"The attachments are too large ({size} > {ATTACHMENTS_BYTES} bytes)."}
    values = evaluation.values
    return {name: values[name] for name in attachments if name in values} | evaluation.failures()


class _Evaluation:
    """The attachments of one subscription on one document."""

    def __init__(
        self,
        document: Any,
        steps: int,
        budget: jmes.Budget,
        watch: Callable[[], None] | None,
    ) -> None:
        self.values: dict[str, Any] = {}
        self._document, self._steps = document, steps
        self._budget, self._watch = budget, watch
        self._errors: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def run(self, attachments: Attachments) -> None:
        """Evaluate all of them, in rounds with a growing allowance."""
        waiting, allowance = dict(attachments), min(FIRST, self._steps)
        while waiting:
            for name, attachment in list(waiting.items()):
                if self._settle(name, attachment["expression"], allowance):
                    del waiting[name]
            allowance = min(allowance * GROWTH, self._steps)

    def _settle(self, name: str, expression: str, allowance: int) -> bool:
        """Evaluate one; False if it needs a larger allowance than this, and may have it."""
        allowed = min(allowance, self._budget.left)
        own = jmes.Budget(allowed, self._watch)
        try:
            self._keep(name, *_value(expression, self._document, own))
        except jmes.Exhausted as error:
            if allowed == allowance < self._steps:
                return False
            self._errors[name] = str(error) if allowed == allowance else TOGETHER
        except jmes.Failed as error:
            self._errors[name] = str(error)
        finally:
            self._budget.pay(min(allowed, allowed - own.left))
        return True

    def _keep(self, name: str, value: Any, size: int) -> None:
        """Keep a value, or none at all once they are too large to be sent."""
        self._sizes[name], self.values[name] = size, value
        if sum(self._sizes.values()) > ATTACHMENTS_BYTES:
            self.values.clear()

    def size(self) -> int:
        """Bytes of the whole as JSON, also where values were not kept."""
        without = dump(dict.fromkeys(self._sizes, 0) | self.failures())
        return len(without.encode()) - len(self._sizes) + sum(self._sizes.values())

    def failures(self) -> dict[str, dict[str, str]]:
        """The member `_errors`, if there is any."""
        return {ERRORS: self._errors} if self._errors else {}


def _value(expression: str, document: Any, budget: jmes.Budget) -> tuple[Any, int]:
    """The result and its bytes as JSON; Failed where JSON cannot express it."""
    try:
        compiled = jmes.compiled(expression)
    except Invalid as error:
        raise jmes.Failed(error.detail) from error
    value = compiled.search(document, budget)
    budget.pay_for(value)
    try:
        return value, len(dump(value).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise jmes.Failed("The result is not JSON.") from error
