"""What validation finds: where, how bad, and what is wrong."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from store_client.errors import Misused

Severity = Literal["error", "warning"]
COLUMNS = ("path", "line", "column", "pointer", "severity", "message")
"""Members of a finding, in the order in which they are printed."""
ERROR: Severity = "error"
WARNING: Severity = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a file; the store refuses errors, and accepts what has warnings.

    line, column: from 1, in characters, where they are known.
    pointer: the JSON pointer of the value; "" is the whole document, None no value of JSON.
    """

    path: str
    message: str
    severity: Severity = ERROR
    line: int | None = None
    column: int | None = None
    pointer: str | None = None

    def __str__(self) -> str:
        """As compilers print it: `path:line:column: message`."""
        place = "".join(f":{number}" for number in (self.line, self.column) if number is not None)
        kind = "" if self.severity == ERROR else f"{self.severity}: "
        at = f"{self.pointer}: " if self.pointer else ""
        return f"{self.path}{place}: {kind}{at}{self.message}"

    def as_json(self) -> dict[str, Any]:
        """As `store validate` prints it in a pipe."""
        return {name: getattr(self, name) for name in COLUMNS}


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """All findings, and what was validated.

    files, size: how many, and their bytes.
    validated: documents that a schema was found for.
    """

    findings: Sequence[Finding]
    files: int
    size: int = 0
    validated: int = 0

    @property
    def errors(self) -> list[Finding]:
        """What the store would refuse."""
        return [one for one in self.findings if one.severity == ERROR]

    def count(self, severity: Severity) -> int:
        """How many findings are of that severity."""
        return Counter(one.severity for one in self.findings)[severity]


class InvalidFiles(Misused):
    """Files that cannot be uploaded as they are: nothing was sent."""

    def __init__(self, findings: Sequence[Finding], *, hint: str = "") -> None:
        first = findings[0]
        others = len({one.path for one in findings} - {first.path})
        more = f" (and {others} more files)" if others else ""
        details = tuple(map(str, findings)) if len(findings) > 1 else ()
        super().__init__(f"{_describe(first)}{more}", hint=hint, details=details)
        self.findings = findings


def _describe(finding: Finding) -> str:
    """One sentence, as in error messages."""
    place = f", line {finding.line}" if finding.line is not None else ""
    place += f", column {finding.column}" if finding.column is not None else ""
    at = f"#{finding.pointer}" if finding.pointer else ""
    return f"{finding.path}{at}{place}: {finding.message}"


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """By path and place."""
    return sorted(
        findings, key=lambda one: (one.path, one.line or 0, one.column or 0, one.pointer or "")
    )
