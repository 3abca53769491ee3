"""The verdict."""

import io

from rich.console import Console

from ops.demo.report import Report


def shown(report: Report) -> str:
    out = io.StringIO()
    report.show(Console(file=out, width=100))
    return out.getvalue()


def test_a_report_is_good_only_if_something_was_expected_and_all_held() -> None:
    report = Report()
    assert not report.good
    report.expect("the sky is blue", True, took_s=1.5)
    assert report.good
    report.expect("the sea [sic] is dry", False, missing=[str(n) for n in range(9)])
    assert not report.good


def test_what_failed_is_said_in_words() -> None:
    report = Report()
    report.expect("the sky is blue", True, took_s=1.5)
    report.expect("the sea [sic] is dry", False, missing=[str(n) for n in range(9)])
    text = shown(report)
    assert "ok   the sky is blue after 1.5 s" in text
    assert "FAIL the sea [sic] is dry" in text
    assert "0, 1, 2, 3, 4 and 4 more" in text
    assert "1 of 2 expectations failed" in text
