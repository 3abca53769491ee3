"""`minimum_should_match`: how many optional clauses have to hold."""

import re

SIMPLE = re.compile(r"-?\d{1,9}%?")
CONDITIONAL = re.compile(r"\d{1,9}<-?\d{1,9}%?(?: \d{1,9}<-?\d{1,9}%?)*")


def normalized(spec: str) -> str | None:
    """The specification without stray blanks, or None if it is not one."""
    text = re.sub(r"\s*<\s*", "<", spec.strip())
    return text if SIMPLE.fullmatch(text) or CONDITIONAL.fullmatch(text) else None


def required(optional: int, spec: str) -> int:
    """How many of `optional` clauses the normalized specification asks for; may exceed their
    number, and then nothing matches."""
    if "<" not in spec:
        return max(0, _simple(optional, spec))
    result = optional
    for part in spec.split(" "):
        above, _, simple = part.partition("<")
        if optional <= int(above):
            return result
        result = max(0, _simple(optional, simple))
    return result


def _simple(optional: int, spec: str) -> int:
    if spec.endswith("%"):
        # Towards zero for either sign, as the engines do.
        part = int(abs(optional * int(spec[:-1])) // 100)
        return part if not spec.startswith("-") else optional - part
    number = int(spec)
    return number if number >= 0 else optional + number
