"""The command `partition` where nothing can be partitioned."""

from pathlib import Path

import pytest

from tests.ops.commands import typed

pytestmark = pytest.mark.spec("OPS-63")


def test_refuses_a_catalog_on_sqlite(home: Path) -> None:
    result = typed("partition", "visible", "--parts", "64")
    assert result.exit_code == 1
    assert "The catalog is SQLite, which has no partitions" in result.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("visible", "--parts", "0"), "0 is not in the range 1<=x<=256"),
        (("visible", "--parts", "257"), "257 is not in the range 1<=x<=256"),
        (("visible",), "Missing option '--parts'"),
        (("files", "--parts", "64"), "'files' is not one of 'visible', 'presence'"),
        (("visible", "--parts", "64", "--wait", "nan"), "'--wait': It is not a finite number"),
    ],
    ids=["none", "many", "missing", "table", "wait"],
)
def test_names_what_is_wrong_with_an_option(
    home: Path, words: tuple[str, ...], reason: str
) -> None:
    result = typed("partition", *words)
    assert result.exit_code == 2
    assert reason in result.output
