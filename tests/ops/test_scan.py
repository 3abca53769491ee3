"""What a report of pip-audit means."""

from typing import Any

import pytest

from tests import scan

CLEAN = {"name": "flask", "version": "3.1.0", "vulns": []}
BAD = {
    "name": "jinja2",
    "version": "3.0.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.6"]}],
}
UNREAD = {"name": "rich", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("libraries", "code", "said"),
    [
        ([CLEAN], scan.NONE, "1 libraries: no vulnerability is known"),
        ([CLEAN, BAD], scan.SOME, "jinja2 3.0.0: PYSEC-1, fixed in 3.1.6"),
        ([CLEAN, UNREAD], scan.UNKNOWN, "no data were reached for: rich"),
        ([BAD, UNREAD], scan.SOME, "no data were reached for: rich"),
        ([UNREAD], scan.UNKNOWN, "no data were reached for any library"),
        ([], scan.UNKNOWN, "names no library"),
    ],
)
def test_scan_tells_clean_from_unknown(
    libraries: list[dict[str, Any]], code: int, said: str
) -> None:
    found, lines = scan.judge({"dependencies": libraries})
    assert found == code
    assert said in "\n".join(lines)
