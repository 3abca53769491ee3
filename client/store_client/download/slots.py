"""How many streams there may be at once: one for each file that is being brought, and more for a
large one as long as nobody waits."""

import threading


class Slots:
    """`count` of them."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = 0
        self._changed = threading.Condition()

    def take(self) -> None:
        """One, as soon as there is one."""
        with self._changed:
            self._waiting += 1
            while not self._free:
                self._changed.wait()
            self._waiting -= 1
            self._free -= 1

    def spare(self) -> bool:
        """One that nobody waits for, if there is one."""
        with self._changed:
            if self._free <= self._waiting:
                return False
            self._free -= 1
            return True

    def give(self) -> None:
        """Give one back."""
        with self._changed:
            self._free += 1
            self._changed.notify()
