"""Prometheus' own checks of the alerts, of the example of its configuration, and of dashboards."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
import yaml

from tests import monitoring
from tests.drill import alert_causes, alerts
from tests.drill.alerts import Report, Scenario, Stage, run_stages
from tests.engines.prometheus import VARIABLE
from tests.monitoring import DEPLOY

PROMTOOL = os.environ.get(VARIABLE)
RULE_TESTS = Path(__file__).parents[1] / "ops" / "alerts_test.yml"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(PROMTOOL is None, reason=f"{VARIABLE} names no promtool"),
    pytest.mark.spec("OPS-02"),
]


def run_promtool(*words: str | Path) -> str:
    """Run promtool; return what it prints."""
    assert PROMTOOL
    done = subprocess.run(
        [PROMTOOL, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_are_valid() -> None:
    count = len(monitoring.read_alerts())
    assert f"{count} rules found" in run_promtool("check", "rules", DEPLOY / "alerts.yml")


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus.compose.yml"])
def test_example_of_the_configuration_is_valid(name: str, tmp_path: Path) -> None:
    for file in ("alerts.yml", name):
        shutil.copy(DEPLOY / file, tmp_path)
    (tmp_path / "token").write_text("a token", encoding="utf-8")
    assert "1 rule files found" in run_promtool("check", "config", tmp_path / name)


def test_alerts_fire_and_clear() -> None:
    tested = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    assert [test["name"] for test in tested] == [
        alert["alert"] for alert in monitoring.read_alerts()
    ]
    for test in tested:
        expected = [bool(case["exp_alerts"]) for case in test["alert_rule_test"]]
        assert expected == [False, True, False], test["name"]
    assert "SUCCESS" in run_promtool("test", "rules", RULE_TESTS)


def test_expressions_of_dashboards_can_be_parsed(tmp_path: Path) -> None:
    rules = [
        {"record": f"dashboard:{number}", "expr": expression}
        for number, expression in enumerate(monitoring.list_dashboard_expressions())
    ]
    page = tmp_path / "dashboards.yml"
    page.write_text(
        json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}), encoding="utf-8"
    )
    assert f"{len(rules)} rules found" in run_promtool("check", "rules", page)


def test_alert_fires_for_its_cause_and_clears_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a loaded machine single scrapes time out, and the alert waits anew.
    monkeypatch.setattr(alerts, "LIMIT_S", 2 * alerts.LIMIT_S)
    alert, how = "StoreDiskRefusesWrites", "a folder moved away"
    scenario = Scenario((alert,), how, alert_causes.folder_away)
    report = Report()
    run_stages([Stage("store", {}, ((scenario,),))], tmp_path, Random(1), report)
    assert report.faults == []
    assert [alert in line for line in report.lines] == [True]
    assert len(report.series) == len(monitoring.list_panel_queries())
    shown = {query.panel for query, count in report.series.items() if count}
    assert {"Store answers", "Failed parts", "Parts that are not ok", "Stored objects"} <= shown
