"""Alerts and dashboards name metrics that exist, and the runbook has a section for each alert."""

import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.http.metrics import RequestMetrics
from api.metrics import PART_STATES, SAMPLED_METRICS
from ops.procfile import ROOT
from tests import monitoring
from tests.drill import alerts as drill
from tests.live.prometheus import shorten_durations
from tests.monitoring import find_metrics, list_panels, read_alerts, read_dashboards

pytestmark = pytest.mark.spec("OPS-02")

RUNBOOK = ROOT / "docs" / "runbook.md"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
ALERTS = {alert["alert"]: alert for alert in read_alerts()}
DASHBOARDS = read_dashboards()
DURATIONS = {"m": 60, "h": 3600, "d": 86400}
SELF_HEALING_S = 120
"""Shorter than this, nothing needs a person."""

alerts = pytest.mark.parametrize("alert", ALERTS.values(), ids=ALERTS.keys())
dashboards = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())


def list_series() -> set[str]:
    """Return the names under which the store's metrics are scraped."""
    sampled = {
        f"{metric.name}_total" if metric.kind == "counter" else metric.name
        for metric in SAMPLED_METRICS
    }
    counted = RequestMetrics().render_text(lambda: ()).decode()
    return sampled | {
        family.name + suffix
        for family in text_string_to_metric_families(counted)
        for suffix in SUFFIXES[family.type]
    }


SERIES = list_series()


def test_metrics_of_an_expression_are_found() -> None:
    expression = 'sum by (step) (rate(store_b_total{x="store_c"}[5m])) / store_d > 1 or store_e'
    assert find_metrics(expression) == {"store_b_total", "store_d", "store_e"}


@alerts
def test_metrics_of_alert_exist(alert: dict[str, Any]) -> None:
    named = find_metrics(alert["expr"])
    assert named or alert["expr"].startswith("up{")
    assert named <= SERIES


@alerts
def test_alert_has_severity_duration_and_summary(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    number, unit = int(alert["for"][:-1]), alert["for"][-1]
    assert number * DURATIONS[unit] >= SELF_HEALING_S
    assert alert["annotations"]["summary"].endswith(".")


@alerts
def test_states_of_parts_exist(alert: dict[str, Any]) -> None:
    for selector in re.findall(r"store_part\{([^}]*)\}", alert["expr"]):
        assert set(re.findall(r'state="(\w+)"', selector)) <= {*PART_STATES}


def test_drill_provokes_every_alert() -> None:
    provoked = [
        alert
        for stage in drill.STAGES
        for sequence in stage.sequences
        for scenario in sequence
        for alert in scenario.alerts
    ]
    assert sorted(provoked) == sorted(ALERTS)


def test_drill_shortens_durations_and_nothing_else() -> None:
    rules = "for: 5m\nexpr: rate(a[10m]) > 900 and b[1h] > 2 * 3600\nfor: 1d\nsummary: for 5m."
    assert shorten_durations(rules) == (
        "for: 15s\nexpr: rate(a[30s]) > 900 and b[45s] > 2 * 3600\nfor: 45s\nsummary: for 5m."
    )


def test_every_alert_has_a_section_of_the_runbook() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == list(ALERTS)
    anchors = [alert["annotations"]["runbook"] for alert in ALERTS.values()]
    assert anchors == [f"docs/runbook.md#{name.lower()}" for name in ALERTS]


@pytest.mark.parametrize("name", ALERTS)
def test_section_answers_four_questions(name: str) -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    section = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\*\*([\w ]+)\*\*: \S", section, re.MULTILINE) == [
        "Means",
        "Still works",
        "Look",
        "Do",
    ]


def test_dashboards_show_each_subject() -> None:
    assert [*DASHBOARDS] == [
        "deliveries.json",
        "engines.json",
        "integrity.json",
        "jobs.json",
        "overview.json",
    ]
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS)


def test_metrics_of_dashboards_exist() -> None:
    expressions = monitoring.list_dashboard_expressions()
    assert set().union(*map(find_metrics, expressions)) <= SERIES
    assert [one for one in expressions if not find_metrics(one) and "up{" not in one] == []


def test_dashboards_show_the_metrics_of_every_alert() -> None:
    shown = set().union(*map(find_metrics, monitoring.list_dashboard_expressions()))
    assert set().union(*(find_metrics(alert["expr"]) for alert in ALERTS.values())) <= shown


def test_values_of_the_catalog_are_not_added_over_instances() -> None:
    # Each home of a store reports the same value.
    sampled = {metric.name for metric in SAMPLED_METRICS}
    added = [
        expression
        for expression in monitoring.list_dashboard_expressions()
        if re.match(r"sum(?! by \(instance)", expression)
    ]
    assert added
    named = set().union(*map(find_metrics, added))
    assert {name.removesuffix("_total") for name in named} & sampled == set()


def test_drill_fails_for_panels_without_data() -> None:
    queries = monitoring.list_panel_queries()
    assert {query.panel for query in queries} >= drill.EMPTY_PANELS
    report = drill.Report(series=dict.fromkeys(queries, 0))
    report.check_panels(is_complete=True)
    excused = [query for query in queries if query.panel in drill.EMPTY_PANELS]
    assert len(report.faults) == len(queries) - len(excused)
    for is_complete, count in ((True, 1), (False, 0)):
        report = drill.Report(series=dict.fromkeys(queries, count))
        report.check_panels(is_complete)
        assert report.faults == []


@dashboards
def test_dashboard_can_be_imported(dashboard: dict[str, Any]) -> None:
    assert re.fullmatch(r"store-[a-z]+", dashboard["uid"])
    assert dashboard["title"]
    assert dashboard["schemaVersion"] >= 36
    assert "id" not in dashboard, "Grafana gives ids"
    assert [one["name"] for one in dashboard["templating"]["list"]] == ["datasource", "instance"]
    panels = list_panels(dashboard)
    assert len({panel["id"] for panel in panels}) == len(panels) > 0


@dashboards
def test_panels_have_places_of_their_own(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@dashboards
def test_panels_have_titles_units_and_targets(dashboard: dict[str, Any]) -> None:
    for panel in list_panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert "$instance" in target["expr"], panel["title"]
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names)


def test_numbers_have_colours_of_their_own() -> None:
    # Without thresholds Grafana shows each number from 80 on in red, and no dead job.
    for dashboard in DASHBOARDS.values():
        for panel in list_panels(dashboard):
            if panel["type"] == "stat":
                steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
                values = [step["value"] for step in steps]
                assert values[0] is None, panel["title"]
                assert values[1:] == sorted(values[1:])


def test_alerts_that_panels_name_exist() -> None:
    named = {
        name
        for dashboard in DASHBOARDS.values()
        for panel in list_panels(dashboard)
        for name in re.findall(r"\bStore[A-Z]\w+", panel["description"])
    }
    assert named
    assert named <= ALERTS.keys()
