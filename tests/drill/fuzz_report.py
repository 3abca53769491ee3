"""Count the answers of a fuzzing run and report faults."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemathesis import Case
from schemathesis.core.failures import Failure, ServerError
from schemathesis.engine import events
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.openapi.checks import AllowHeaderMismatch, UnsupportedMethodResponse

CLASSES = (2, 3, 4, 5)
SHOWN = 1_500
"""Characters that are shown of one request."""

UNHEARD = 414
"""An address of more than 8 KiB is refused by the HTTP server, before an application has it."""

REJECTION = "negative_data_rejection"
"""Holds that what was made wrong is refused."""

ALIASED = "/collections"
"""Where `PATCH` is answered, too, and is not in the definition, as the contract has it."""


@dataclass
class Findings:
    """Answers by operation and status; faults, each kind once for an operation."""

    names: Mapping[str, str]
    """Operations by method and path."""
    statuses: Mapping[str, frozenset[int]]
    """The statuses that the definition names of each."""
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    _samples: dict[tuple[str, str], str] = field(default_factory=dict)
    _often: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Findings":
        """Nothing yet of what a definition describes."""
        described = {
            f"{verb.upper()} {path}": operation
            for path, verbs in document["paths"].items()
            for verb, operation in verbs.items()
        }
        return cls(
            {label: operation["operationId"] for label, operation in described.items()},
            {
                label: frozenset(
                    int(status) for status in operation["responses"] if status.isdigit()
                )
                for label, operation in described.items()
            },
        )

    @property
    def requests(self) -> int:
        """How many were answered."""
        return self.answers.total()

    def see(self, event: events.EngineEvent) -> None:
        """Take in what the engine tells."""
        match event:
            case events.ScenarioFinished():
                self._scenario(event.recorder)
            case events.NonFatalError():
                self._add(event.label, f"error: {event.info.title}", str(event.value))
            case events.FatalError():
                self._add("all", "error", repr(event.exception))

    def _scenario(self, recorder: ScenarioRecorder) -> None:
        unheard: set[str] = set()
        for ident, interaction in recorder.interactions.items():
            case = recorder.cases[ident].value
            label, asked = case.operation.label, interaction.request
            sample = f"{asked.method} {asked.uri}\n{asked.body!r}"
            response = interaction.response
            if response is None:
                self._add(label, "no answer", sample)
                continue
            if response.status_code == UNHEARD:
                unheard.add(ident)
                continue
            own = case.method.upper() == case.operation.method.upper()
            told = "retry-after" in response.headers
            sample = f"{sample[:SHOWN]}\n{response.content[:SHOWN]!r}"
            self.answered(label, response.status_code, sample, own=own, retry_after=told)
        for ident in recorder.checks.keys() - unheard:
            case = recorder.cases[ident].value
            for check in recorder.checks[ident]:
                if check.failure_info is not None and not _mended(case, check.name):
                    how, failure = check.failure_info.code_sample, check.failure_info.failure
                    self.failed(case.operation.label, check.name, failure, how)

    def answered(
        self, label: str, status: int, sample: str, *, own: bool = True, retry_after: bool = False
    ) -> None:
        """Count an answer; `own` when the method was the operation's."""
        self.answers[label, status] += 1
        if own and status not in self.statuses[label]:
            self._add(label, f"{status} is not named", sample)
        if status >= 500 and not retry_after:
            self._add(label, f"{status} without Retry-After", sample)

    def failed(self, label: str, check: str, failure: Failure, how: str) -> None:
        """Take in what a check complains of."""
        if not _excused(label.partition(" ")[2], failure):
            self._add(label, f"{check}: {failure.title}", f"{failure.message}\n{how}")

    def _add(self, label: str, kind: str, text: str) -> None:
        self._samples.setdefault((label, kind), text[: 2 * SHOWN])
        self._often[label, kind] += 1

    def faults(self, least: int) -> list[str]:
        """All that should not be."""
        found = [
            f"{label}: {kind} ({self._often[label, kind]}×)\n{text}"
            for (label, kind), text in self._samples.items()
        ]
        if self.requests < least:
            found.append(f"only {self.requests} requests were answered")
        reached = {label for label, status in self.answers if status < 400}
        found += [
            f"{name}: never reached" for label, name in self.names.items() if label not in reached
        ]
        return found

    def table(self) -> str:
        """Answers of each operation by class of status."""
        head = "".join(f"{f'{kind}xx':>7}" for kind in CLASSES)
        return "\n".join([f"{'operation':26}{head}", *map(self._line, self.names)])

    def _line(self, label: str) -> str:
        counts: Counter[int] = Counter()
        for (of, status), count in self.answers.items():
            counts[status // 100] += count if of == label else 0
        return f"{self.names[label]:26}" + "".join(f"{counts[kind] or '-':>7}" for kind in CLASSES)


def _mended(case: Case[Any], check: str) -> bool:
    """Whether it was to be refused, but may be right: in a sequence what the answer before told is
    put over what was made wrong."""
    phase = case.meta.phase.name.value if case.meta else ""
    return check == REJECTION and phase == "stateful"


def _excused(path: str, failure: Failure) -> bool:
    """Whether it is right as it is."""
    match failure:
        case ServerError():
            # `answered` knows which of them may be, and what they must say.
            return True
        case UnsupportedMethodResponse():
            return path == ALIASED and failure.method == "PATCH"
        case AllowHeaderMismatch():
            extra = (failure.missing_methods, failure.undocumented_methods)
            return path == ALIASED and extra == ([], ["PATCH"])
        case _:
            return False
