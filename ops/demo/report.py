"""What was expected and what held, with times; told at the end so that a person can read it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape

SHOWN = 5


@dataclass(frozen=True)
class Expectation:
    """One sentence and whether it held."""

    sentence: str
    held: bool
    took_s: float | None = None
    missing: tuple[str, ...] = ()


@dataclass
class Report:
    """All expectations and how long each step took."""

    expectations: list[Expectation] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)

    def expect(
        self,
        sentence: str,
        held: bool,
        *,
        took_s: float | None = None,
        missing: Sequence[str] = (),
    ) -> None:
        """Note one expectation."""
        self.expectations.append(Expectation(sentence, held, took_s, tuple(missing)))

    def took(self, step: str, seconds: float) -> None:
        """Note how long a step took."""
        self.times[step] = seconds

    @property
    def failed(self) -> list[Expectation]:
        """Those that did not hold."""
        return [item for item in self.expectations if not item.held]

    @property
    def good(self) -> bool:
        """Whether there were expectations and all of them held."""
        return bool(self.expectations) and not self.failed

    def show(self, console: Console) -> None:
        """Print everything, the verdict last."""
        console.print()
        for item in self.expectations:
            console.print(_line(item), highlight=False, soft_wrap=True)
        steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in self.times.items())
        console.print(f"\n[dim]{escape(steps)}[/dim]", highlight=False, soft_wrap=True)
        count = len(self.expectations)
        if self.good:
            console.print(f"[bold green]All {count} expectations held.[/bold green]")
        else:
            console.print(
                f"[bold red]{len(self.failed)} of {count} expectations failed.[/bold red]"
            )


def _line(item: Expectation) -> str:
    mark = "[green]ok  [/green]" if item.held else "[red]FAIL[/red]"
    when = f" [dim]after {item.took_s:.1f} s[/dim]" if item.took_s is not None else ""
    names = escape(", ".join(item.missing[:SHOWN]))
    more = f" and {len(item.missing) - SHOWN} more" if len(item.missing) > SHOWN else ""
    lacking = f"\n       {names}{more}" if item.missing else ""
    return f"{mark} {escape(item.sentence)}{when}{lacking}"
