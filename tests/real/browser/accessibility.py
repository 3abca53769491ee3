"""Check a page by axe-core against WCAG 2 A and AA."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
NOT_OURS = ["#reference"]
"""Swagger UI's own markup."""
NOT_CHECKED = {"landmark-no-duplicate-main": {"enabled": False}}
"""Swagger UI has a second one."""


def find_violations(page: Page, *, only: list[str] | None = None) -> list[str]:
    """List each violation with the elements; `only` names rules, default all."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE)
    run = {"type": "rule", "values": only} if only else {"type": "tag", "values": TAGS}
    found: dict[str, Any] = page.evaluate(
        "([context, options]) => axe.run(context, options)",
        [
            {"exclude": [[one] for one in NOT_OURS]},
            {"runOnly": run, "resultTypes": ["violations"], "rules": NOT_CHECKED},
        ],
    )
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]} {_explain(node)}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def _explain(node: dict[str, Any]) -> str:
    data = [check["data"] for check in node["any"] if isinstance(check.get("data"), dict)]
    return "; ".join(
        f"{one['fgColor']} on {one['bgColor']}: {one['contrastRatio']}"
        for one in data
        if "contrastRatio" in one
    )
