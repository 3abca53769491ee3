"""Types of the options of operator commands."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A finite number within bounds; NaN is within all bounds otherwise."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail("It is not a finite number.", param, ctx)
        return number


class PrintableText(click.ParamType[str]):
    """A text in UTF-8; it is not blank, as an empty variable of a script would make it."""

    name = "text"

    def __init__(self, *, may_be_empty: bool = False) -> None:
        self._may_be_empty = may_be_empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text."""
        if not self._may_be_empty and not value.strip():
            self.fail("must not be empty", param, ctx)
        if any("\ud800" <= character <= "\udfff" for character in value):
            self.fail("must be UTF-8", param, ctx)
        return value
