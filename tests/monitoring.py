"""Read the alerts and dashboards that operators get."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
VARIABLES = {"$__rate_interval": "5m", "$instance": ".+"}
"""Values for Grafana's variables, without which an expression cannot be parsed."""


def read_alerts() -> list[dict[str, Any]]:
    """Return the alerts in their order."""
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def read_dashboards() -> dict[str, dict[str, Any]]:
    """Return the dashboards by the names of their files."""
    paths = sorted((DEPLOY / "grafana").glob("*.json"))
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def list_panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the panels that show something, rows left out."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def list_dashboard_expressions() -> list[str]:
    """Return the expressions of all dashboards, with values for Grafana's variables."""
    return list(_iterate_expressions())


def _iterate_expressions() -> Iterator[str]:
    for dashboard in read_dashboards().values():
        for panel in list_panels(dashboard):
            for target in panel["targets"]:
                expression: str = target["expr"]
                for name, value in VARIABLES.items():
                    expression = expression.replace(name, value)
                yield expression


def find_metrics(expression: str) -> set[str]:
    """Return the names of the store's metrics in an expression."""
    return set(re.findall(r"\bstore_[a-z_]+\b(?=[{\[\s)]|$)", _without_values(expression)))


def _without_values(expression: str) -> str:
    """Leave out the values of labels."""
    return re.sub(r'"[^"]*"', '""', expression)
