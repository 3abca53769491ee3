"""Build notification payloads, and evaluate attachments within their size cap."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from pipelines.formats import version_from_us
from pipelines.limits import ATTACHMENTS_MAX_BYTES
from pipelines.queries import bounded_jmespath
from pipelines.queries.bounded_jmespath import ALLOWANCE_GROWTH, FIRST_ALLOWANCE
from storage.catalog.subscriptions import JMESPATH, Subscription
from storage.errors import DomainError, Invalid
from storage.model import FQID, BundleEvent

NO_BUNDLE_UUID = "00000000-0000-0000-0000-000000000000"
"""The bundle of a test delivery where none matches."""


def dump_json(value: Any) -> str:
    """Return compact JSON; raise ValueError for values that are not valid JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text.encode()  # a lone surrogate is a ValueError
    return text


def build_payload(
    subscription: Subscription,
    event: BundleEvent,
    *,
    delivery: str,
    base_url: str,
    attachments: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Build the payload of a matching event; `attachments` is None without the member."""
    body = _build_common_members(subscription, event.fqid, delivery=delivery, event_type=event.type)
    asked = urlencode({"version": event.fqid.version, "replica": event.replica})
    body["bundle_url"] = f"{base_url}/v1/bundles/{event.fqid.uuid}?{asked}"
    body["event_timestamp"] = version_from_us(event.at_us)
    if attachments is not None:
        body["attachments"] = attachments
    return body


def build_test_payload(subscription: Subscription, *, delivery: str, now_us: int) -> dict[str, Any]:
    """Build the payload of a test delivery without a bundle."""
    fqid = FQID(NO_BUNDLE_UUID, version_from_us(now_us))
    body = _build_common_members(subscription, fqid, delivery=delivery, event_type="CREATE")
    return body | {"event_timestamp": fqid.version}


def build_test_members(delivery: str) -> dict[str, Any]:
    """Return the members in which a test's payload differs from that of an event."""
    return {"transaction_id": delivery, "test": True}


def _build_common_members(
    subscription: Subscription, fqid: FQID, *, delivery: str, event_type: str
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "transaction_id": delivery,
        "subscription_id": subscription.uuid,
        "match": {"bundle_uuid": fqid.uuid, "bundle_version": fqid.version},
    }
    if subscription.type == JMESPATH:
        body["event_type"] = event_type
        # A subscription without a query has no string to show.
        body |= {} if subscription.query is None else {"jmespath_query": subscription.query}
    else:
        body["es_query"] = json.loads(subscription.query or "{}")
    return body


log = logging.getLogger(__name__)

ERRORS_MEMBER = "_errors"
ATTACHMENT_TYPE = "jmespath"
TOTAL_STEPS_EXCEEDED = "The attachments together take more steps on one event than allowed."

Attachments = Mapping[str, Mapping[str, str]]


def check_attachments(attachments: Attachments) -> None:
    """Raise Invalid for a reserved name, an unknown type, or an invalid expression."""
    for name, attachment in attachments.items():
        where = f"/attachments/{name}"
        if name.startswith("_"):
            detail = "Names must not start with an underscore."
            raise Invalid(
                f"'{name}': {detail}", code="invalid_attachment_name", errors={where: [detail]}
            )
        if attachment.get("type") != ATTACHMENT_TYPE:
            raise _invalid_attachment(where, "The type must be jmespath.")
        try:
            bounded_jmespath.validate_expression(attachment.get("expression", ""))
        except Invalid as error:
            raise _invalid_attachment(where, error.detail) from error


def _invalid_attachment(where: str, detail: str) -> Invalid:
    return Invalid(detail, code="invalid_attachment_expression", errors={where: [detail]})


def evaluate_attachments(
    attachments: Attachments,
    document: Any,
    *,
    steps: int = bounded_jmespath.MAX_STEPS,
    budget: bounded_jmespath.EvaluationBudget | None = None,
    watch: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Return the value of each attachment, and errors under `_errors`.

    Each may take `steps` steps. All are evaluated with few steps first, then those that need more
    with more, so that an expensive one never leaves too few to a cheap one. `budget` bounds all of
    them together, and counts the steps. Only the StoreErrors that `watch` raises are raised.
    """
    together = budget or bounded_jmespath.EvaluationBudget(steps * len(attachments))
    evaluation = _AttachmentEvaluation(document, steps, together, watch)
    try:
        evaluation.run(attachments)
        size = evaluation.size()
    except DomainError:
        raise
    except Exception as error:
        log.warning("attachments failed: %s: %.300s", type(error).__name__, error)
        return {ERRORS_MEMBER: f"The attachments could not be processed ({type(error).__name__})."}
    if size > ATTACHMENTS_MAX_BYTES:
        problem = f"The attachments are too large ({size} > {ATTACHMENTS_MAX_BYTES} bytes)."
        return {ERRORS_MEMBER: problem}
    values = evaluation.values
    return {name: values[name] for name in attachments if name in values} | evaluation.failures()


class _AttachmentEvaluation:
    """The attachments of one subscription on one document."""

    def __init__(
        self,
        document: Any,
        steps: int,
        budget: bounded_jmespath.EvaluationBudget,
        watch: Callable[[], None] | None,
    ) -> None:
        self.values: dict[str, Any] = {}
        self._document, self._steps = document, steps
        self._budget, self._watch = budget, watch
        self._errors: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def run(self, attachments: Attachments) -> None:
        """Evaluate all attachments, in rounds with a growing allowance."""
        waiting, allowance = dict(attachments), min(FIRST_ALLOWANCE, self._steps)
        while waiting:
            for name, attachment in list(waiting.items()):
                if self._evaluate_one(name, attachment["expression"], allowance):
                    del waiting[name]
            allowance = min(allowance * ALLOWANCE_GROWTH, self._steps)

    def _evaluate_one(self, name: str, expression: str, allowance: int) -> bool:
        """Evaluate one; return False if it needs a larger allowance, and may have it."""
        allowed = min(allowance, self._budget.remaining_steps)
        own = bounded_jmespath.EvaluationBudget(allowed, self._watch)
        try:
            value, size = _evaluate_expression(expression, self._document, own)
            self._sizes[name], self.values[name] = size, value
            if sum(self._sizes.values()) > ATTACHMENTS_MAX_BYTES:
                # Too large to be sent: the values are not needed.
                self.values.clear()
        except bounded_jmespath.StepsExhausted as error:
            if allowed == allowance < self._steps:
                return False
            self._errors[name] = str(error) if allowed == allowance else TOTAL_STEPS_EXCEEDED
        except bounded_jmespath.EvaluationFailed as error:
            self._errors[name] = str(error)
        finally:
            self._budget.pay(min(allowed, allowed - own.remaining_steps))
        return True

    def size(self) -> int:
        """Return the bytes of all attachments as JSON, including values that were dropped."""
        without = dump_json(dict.fromkeys(self._sizes, 0) | self.failures())
        return len(without.encode()) - len(self._sizes) + sum(self._sizes.values())

    def failures(self) -> dict[str, dict[str, str]]:
        """Return the member `_errors`, if there are errors."""
        return {ERRORS_MEMBER: self._errors} if self._errors else {}


def _evaluate_expression(
    expression: str, document: Any, budget: bounded_jmespath.EvaluationBudget
) -> tuple[Any, int]:
    """Return the result and its bytes as JSON; raise EvaluationFailed if it is not JSON."""
    try:
        compiled = bounded_jmespath.compile_expression(expression)
    except Invalid as error:
        raise bounded_jmespath.EvaluationFailed(error.detail) from error
    value = compiled.search(document, budget)
    budget.pay_for(value)
    try:
        return value, len(dump_json(value).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise bounded_jmespath.EvaluationFailed("The result is not JSON.") from error
