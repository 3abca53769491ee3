"""Read the alerts and dashboards that operators get."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"


class PanelQuery(NamedTuple):
    """A query of a panel, with Grafana's variables."""

    dashboard: str
    panel: str
    name: str
    expression: str

    def fill_in(self, rate_interval: str = "5m") -> str:
        """Return the expression for all stores, with values for Grafana's variables."""
        filled = self.expression.replace("$__rate_interval", rate_interval)
        return filled.replace("$instance", ".+")


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


def list_panel_queries() -> list[PanelQuery]:
    """Return the queries of all panels of all dashboards."""
    return [
        PanelQuery(dashboard["title"], panel["title"], target["refId"], target["expr"])
        for dashboard in read_dashboards().values()
        for panel in list_panels(dashboard)
        for target in panel["targets"]
    ]


def list_dashboard_expressions() -> list[str]:
    """Return the expressions of all dashboards, with values for Grafana's variables."""
    return [query.fill_in() for query in list_panel_queries()]


def find_metrics(expression: str) -> set[str]:
    """Return the names of the store's metrics in an expression."""
    return set(re.findall(r"\bstore_[a-z_]+\b(?=[{\[\s)]|$)", _without_values(expression)))


def _without_values(expression: str) -> str:
    """Leave out the values of labels."""
    return re.sub(r'"[^"]*"', '""', expression)
