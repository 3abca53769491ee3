"""Whether two words are within a few edits: change, insert, delete, and swap two neighbours."""


def within(left: str, right: str, edits: int, *, transpositions: bool = True) -> bool:
    """Whether at most `edits` edits make one into the other; only a band of the table is filled."""
    if left == right:
        return True
    if edits == 0 or abs(len(left) - len(right)) > edits:
        return False
    left, right = _without_common_ends(left, right)
    far = edits + 1
    before: list[int] = []
    last = [min(column, far) for column in range(len(right) + 1)]
    for row, character in enumerate(left, 1):
        current = [far] * (len(right) + 1)
        if row <= edits:
            current[0] = row
        for column in range(max(1, row - edits), min(len(right), row + edits) + 1):
            best = last[column - 1] + (character != right[column - 1])
            best = min(best, last[column] + 1, current[column - 1] + 1)
            if transpositions and _swapped(left, right, row, column):
                best = min(best, before[column - 2] + 1)
            current[column] = min(best, far)
        if min(current) > edits:
            return False
        before, last = last, current
    return last[-1] <= edits


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
