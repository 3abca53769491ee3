"""Tables of the documentation, generated from the code by `make docs`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isinf
from pathlib import Path

from prometheus_client import Counter, Gauge, Histogram

from api.app import OPERATIONS
from api.authz.app import OPERATIONS as OF_AUTH
from api.http.metrics import RequestMetrics
from api.metrics import SAMPLED_METRICS
from auth.account_operations import AUTHENTICATED_OPERATIONS, REQUIRED_ACTIONS
from auth.authorization import CHECKOUT_ELSEWHERE, OPEN_OPERATIONS, RESOURCES, action_name
from config.loading import list_groups
from config.reference import list_settings
from config.settings import PREFIX
from ops import procfile
from ops.settings_reference import KINDS
from storage import metrics as storage_metrics
from tests.client import stubs
from tests.least_roles import least_role, least_role_over_accounts
from tests.permissions_table import AUTH, BAD, CALLERS, STORE, Row
from workers import deliver
from workers.actors import ACTORS, MINUTES, QUEUES, find_queue_steps
from workers.delivery_turns import DeliveryRules
from workers.queues import QUEUE_POLICIES

ROOT = Path(__file__).resolve().parent.parent
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("monitoring", "operations", "permissions"))
BLOCK = re.compile(r"(<!-- begin (\w+)[^>]*-->\n)(.*?)(<!-- end \2 -->)", re.DOTALL)


KIND_VALUES = {
    "home": ("a folder, which holds everything", "a folder", "a folder of each machine"),
    "host": ("`127.0.0.1`", "`127.0.0.1`, behind a proxy", "an address of the inner network"),
    "external_url": ("empty", "the address that users see", "the address that users see"),
    "auth_external_url": ("empty", "the address that users see", "the address that users see"),
    "proxies": ("`0`", "`1`", "the number of proxies in front"),
    "secret_key": ("created at first start", "created, or set", "set, the same on all"),
    "catalog_url": ("empty: SQLite", "PostgreSQL", "PostgreSQL"),
    "search_url": ("empty: SQLite files", "OpenSearch", "OpenSearch"),
    "redis_url": ("empty: one worker", "Redis", "Redis"),
    "replica_aws": ("empty: a folder", "a folder, or `s3://`", "`s3://`"),
    "replica_gcp": ("empty: a folder", "a folder on another disk, or `s3://`", "`gs://`"),
    "areas_url": ("empty: a folder", "a folder, or `s3://`", "`s3://` or `gs://`"),
    "ops_port": ("`0`", "a port for Prometheus", "a port for Prometheus"),
    "metrics_port": ("`0`", "`0`; in containers a port", "another port for Prometheus"),
    "api_processes": ("`1`", "processors, at most", "processors, at most"),
    "allow_private_callbacks": ("`true`", "`false`", "`false`"),
}
"""What to set for each kind, in the order of `KINDS`."""


def tables() -> Mapping[str, str]:
    """Every table by the name it has in the page."""
    return {
        "settings": settings(),
        "kinds": kinds(),
        "queues": queues(),
        "processes": processes(),
        "metrics": metrics(),
        "of_the_store": of_the_store(),
        "of_accounts": of_accounts(),
        "callers": callers(),
        "answers_of_the_store": answers(STORE),
        "answers_of_accounts": answers(AUTH),
    }


def settings() -> str:
    """Every setting, in a table for each group."""
    rows = {variable: (default, about) for variable, default, about in list_settings()}
    lines: list[str] = []
    for group, names in list_groups():
        lines += [f"### {group.title}", "", f"Table `[{group.table}]` of the settings file.", ""]
        lines += ["| variable | default | meaning |", "|---|---|---|"]
        for name in names:
            default, about = rows[variable := f"{PREFIX}{name.upper()}"]
            shown = f"`{default}`" if default else ""
            lines.append(f"| `{variable}` | {shown} | {about} |")
        lines.append("")
    return "\n".join(lines)


def kinds() -> str:
    """Settings whose value depends on the kind of deployment, as a table."""
    lines = [f"| variable | {' | '.join(KINDS.values())} |", "|---" * (len(KINDS) + 1) + "|"]
    for name, values in KIND_VALUES.items():
        lines.append(f"| `{PREFIX}{name.upper()}` | {' | '.join(values)} |")
    return "\n".join(lines) + "\n"


def queues() -> str:
    lines = [
        "| queue | step | priority | time limit, min | lease, s | retried after, s | what it does |",
        "|---|---|---|---|---|---|---|",
    ]
    for queue in QUEUES:
        for step in find_queue_steps(queue):
            actor, policy = ACTORS[step], QUEUE_POLICIES[step]
            delays = ", ".join(f"{delay:g}" for delay in policy.backoff_s)
            limit = actor.options["time_limit"] / MINUTES
            shown = "–" if isinf(limit) else f"{limit:g}"
            lines.append(
                f"| `{queue}` | `{step}` | {actor.priority} | {shown} | {policy.lease_s:g} |"
                f" {delays} | {actor.fn.__doc__} |"
            )
    limit = deliver.TIME_LIMIT_MS / MINUTES
    lease = DeliveryRules(()).lease_s
    lines.append(
        f"| `{deliver.QUEUE}` | `{deliver.QUEUE}` | {deliver.deliver.priority} | {limit:g} | {lease:g} |"
        f" – | {deliver.deliver.fn.__doc__} |"
    )
    return "\n".join(lines) + "\n"


def processes() -> str:
    lines = ["| process | command | why |", "|---|---|---|"]
    for line in procfile.read_procfile():
        lines.append(f"| `{line.name}` | `{' '.join(line.command)}` | {line.reason} |")
    return "\n".join(lines) + "\n"


def metrics() -> str:
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in sorted(known_metrics(), key=lambda one: one.name):
        total = "_total" if metric.kind == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        lines.append(
            f"| `{metric.name}{total}` | {metric.kind} | {labels} | {metric.description} |"
        )
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class KnownMetric:
    """A metric family of `/metrics`, without the suffix of counters."""

    name: str
    kind: str
    labels: tuple[str, ...]
    description: str


def known_metrics() -> list[KnownMetric]:
    """Every metric that the store makes itself."""
    counted = [
        one
        for owner in (storage_metrics, RequestMetrics())
        for one in vars(owner).values()
        if isinstance(one, Counter | Gauge | Histogram)
    ]
    return [
        *(
            KnownMetric(family.name, family.type, metric._labelnames, family.documentation)
            for metric in counted
            for family in metric.describe()
        ),
        *(KnownMetric(one.name, one.kind, one.labels, one.description) for one in SAMPLED_METRICS),
    ]


def of_the_store() -> str:
    """What each operation of the store asks of its caller."""
    known = {one.name: f"{one.method} /v1{one.path}" for one in OPERATIONS}
    known |= {
        "get_health": "GET /health",
        "get_metrics": "GET /metrics",
        "retry_jobs": "POST /operations/retry",
    }
    known |= {CHECKOUT_ELSEWHERE: "the same, with a `destination`"}
    lines = [
        "| operation | request | action | resource | least role | owner |",
        "|---|---|---|---|---|---|",
    ]
    for name in sorted(known, key=[*RESOURCES].index):
        shown = known[name] if name == CHECKOUT_ELSEWHERE else f"`{known[name]}`"
        role = "open" if name in OPEN_OPERATIONS else f"`{least_role(name)}`"
        asked = f"`{action_name(name)}` | `{RESOURCES[name]}` | {role}"
        lines.append(f"| `{name}` | {shown} | {asked} | {_owner(name, STORE)} |")
    return "\n".join(lines) + "\n"


def of_accounts() -> str:
    """What each operation of the authorization service asks of its caller."""
    lines = [
        "| operation | request | action | resources | least role |",
        "|---|---|---|---|---|",
    ]
    for one in OF_AUTH:
        asked, role = REQUIRED_ACTIONS.get(one.name), least_role_over_accounts(one.name)
        if asked is None:
            wanted = "– | – | " + ("any token" if one.name in AUTHENTICATED_OPERATIONS else "open")
        else:
            of_whom = _owner(one.name, AUTH)
            resources = ", ".join(f"`{each}`" for each in asked.resources)
            wanted = f"`{asked.name}` | {resources} | `{role}`{of_whom and f': {of_whom}'}"
        lines.append(f"| `{one.name}` | `{one.method} {one.path}` | {wanted} |")
    return "\n".join(lines) + "\n"


def _owner(operation: str, rows: Iterable[Row]) -> str:
    said = (row.owner for row in rows if row.operation == operation and row.owner)
    return " ".join(dict.fromkeys(said))


def callers() -> str:
    """Who they are."""
    bad = "; ".join(f"{name}: {about}" for name, about in BAD.items())
    lines = [f"| `{name}` | {about} |" for name, about in CALLERS.items()]
    return (
        "\n".join(["| caller | description |", "|---|---|", *lines])
        + f"\n\nInvalid tokens: {bad}.\n"
    )


def answers(rows: Iterable[Row]) -> str:
    """Which status each caller gets."""
    named = ("operation", "request", *CALLERS)
    lines = [f"| {' | '.join(named)} |", "|---" * len(named) + "|"]
    for row in rows:
        path = re.sub("<([a-z_]+)>", r"{\1}", row.path.partition("&scope")[0])
        shown = (f"`{row.operation}`", f"`{row.method} {path}`", *row.statuses.split())
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """A page with every table as the code would write it."""
    found = tables()
    return BLOCK.sub(lambda block: block[1] + found[block[2]] + block[4], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
    stubs.write()
