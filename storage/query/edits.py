"""Whether two words are within a few edits: change, insert, delete, and swap two neighbours."""


def price(left: str, right: str, edits: int) -> int:
    """Steps that it costs to tell: most words differ too much long before their end."""
    if abs(len(left) - len(right)) > edits:
        return 0
    return edits * min(len(left), len(right)) // 2


def within(left: str, right: str, edits: int, *, transpositions: bool = True) -> bool:
    """Whether at most `edits` edits make one into the other; only a band of the table is filled."""
    if left == right:
        return True
    if edits == 0 or abs(len(left) - len(right)) > edits:
        return False
    left, right = _without_common_ends(left, right)
    far, width = edits + 1, 2 * edits + 1
    # Place `n` of a row is column `row - edits + n`: the one above it has place `n + 1`.
    before: list[int] = []
    last = [far] * edits + list(range(edits + 1)) + [far]
    for row, character in enumerate(left, 1):
        current = [far] * (width + 1)
        for place in range(max(0, edits - row), min(width, len(right) - row + edits + 1)):
            column = row - edits + place
            best = min(last[place + 1], current[place - 1] if place else far) + 1
            if column:
                best = min(best, last[place] + (character != right[column - 1]))
            if transpositions and _swapped(left, right, row, column):
                best = min(best, before[place] + 1)
            current[place] = min(best, far)
        if min(current) > edits:
            return False
        before, last = last, current
    return last[len(right) - len(left) + edits] <= edits


def _swapped(left: str, right: str, row: int, column: int) -> bool:
    if row < 2 or column < 2:
        return False
    return left[row - 1] == right[column - 2] and left[row - 2] == right[column - 1]


def _without_common_ends(left: str, right: str) -> tuple[str, str]:
    start = 0
    shorter = min(len(left), len(right))
    while start < shorter and left[start] == right[start]:
        start += 1
    end = 0
    while end < shorter - start and left[-1 - end] == right[-1 - end]:
        end += 1
    return left[start : len(left) - end], right[start : len(right) - end]
