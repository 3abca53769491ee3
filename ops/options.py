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
