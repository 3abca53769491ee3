"""JSON pointers (RFC 6901) as errors name places by them: no step is longer than anybody reads."""

MAX_STEP = 200
"""Characters of one name."""


def step(name: object) -> str:
    """What leads to a member or an item: a slash and its name, cut off where that is long."""
    text = str(name)
    shown = text if len(text) <= MAX_STEP else f"{text[:MAX_STEP]}…"
    return "/" + shown.replace("~", "~0").replace("/", "~1")
