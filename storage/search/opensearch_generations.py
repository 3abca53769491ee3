"""Which index of OpenSearch is searched, and which is being built beside it.

Each generation is an index of its own; aliases name them, and only the engine changes an alias, in
one step. `<base>` is what is searched, `<base>-building` what a rebuild fills. Each index has a
third alias of its own, by which it is written: a write that requires an alias never makes an index.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from storage.errors import Invalid, NotFound, Unavailable
from storage.query.words import ANALYSIS
from storage.search.opensearch_client import Answer, Engine
from storage.search.opensearch_combined import Dsl
from storage.search.opensearch_documents import LAYOUT, MAPPING

BUILDING = "-building"
WRITING = "-writing"
EXISTS = "resource_already_exists_exception"
# How often somebody else may make or drop a generation between two looks of ours.
RACES = 10


@dataclass(frozen=True, slots=True)
class Generations:
    """`current` is searched, `building` only written; either may be absent."""

    current: str | None = None
    building: str | None = None

    def there(self) -> list[str]:
        """Those that there are."""
        return [name for name in (self.current, self.building) if name is not None]


class GenerationIndices:
    """The generations of one replica's index, and where they stand."""

    def __init__(self, engine: Engine, base: str, settings: Dsl) -> None:
        self._engine, self._base, self._settings = engine, base, settings
        self._seen = Generations()

    def is_ours(self, name: str) -> bool:
        """Whether a generation was made with this analysis and this mapping."""
        return name.rpartition("-")[0] == f"{self._base}-{ANALYSIS}-{LAYOUT}"

    def seen(self) -> Generations:
        """As they were when last looked at; a generation that is no more answers NotFound."""
        return self._seen if self._seen.current is not None else self.read()

    def read(self) -> Generations:
        """As they are."""
        path = f"/_alias/{self._base},{self._base}{BUILDING}"
        answer = self._engine.request("GET", path, ignore=(404,))
        self._seen = Generations(
            self._bearing(answer, self._base), self._bearing(answer, self._base + BUILDING)
        )
        return self._seen

    def searched(self) -> str | None:
        """The index to search, or None where there is none yet."""
        current = self.seen().current
        if current is not None and not self.is_ours(current):
            # Another process may have finished the rebuild since.
            current = self.read().current
        if current is not None and not self.is_ours(current):
            raise _other_version()
        return current

    def written(self, generations: Generations) -> list[str]:
        """The generations that a write goes to: those that this version of the code can write."""
        there = generations.there()
        ours = [name for name in there if self.is_ours(name)]
        if there and not ours:
            raise _other_version()
        return ours

    def existing(self) -> Generations:
        """As they are, the first one made where there was none."""
        for _ in range(RACES):
            found = self.read()
            if found.current is not None:
                return found
            self._create(_number(found.building) + 1, self._base)
        raise Unavailable(f"the alias {self._base} is missing, and its index cannot be made")

    def begin(self) -> str:
        """A generation to build, or the one that is being built already."""
        for _ in range(RACES):
            found = self.existing()
            if found.building is not None and self.is_ours(found.building):
                return found.building
            if found.building is not None:
                self.drop(found.building)
            self._create(max(map(_number, found.there())) + 1, self._base + BUILDING)
        raise Unavailable("no generation of the search index can be made")

    def finish(self, found: Generations) -> None:
        """Search the building one from now on and drop the other, in one step."""
        name, alias = found.building, self._base
        actions: list[Dsl] = [
            {"add": {"index": name, "alias": alias}},
            {"remove": {"index": name, "alias": alias + BUILDING}},
        ]
        if found.current is not None:
            actions.append({"remove_index": {"index": found.current}})
        self._engine.request("POST", "/_aliases", {"actions": actions})
        self.read()

    def drop(self, name: str) -> None:
        """Remove a generation; no error when it is gone."""
        self._engine.request("DELETE", f"/{name}", ignore=(404,))

    def _create(self, number: int, alias: str) -> None:
        """Make an index with its aliases; no error when somebody else did."""
        name = f"{self._base}-{ANALYSIS}-{LAYOUT}-{number}"
        body: Dsl = {
            "settings": {"index": self._settings},
            "mappings": MAPPING,
            "aliases": {alias: {}, name + WRITING: {}},
        }
        try:
            self._engine.request("PUT", f"/{name}", body)
        except Invalid as error:
            if EXISTS not in error.detail:
                raise

    def _bearing(self, answer: Answer, alias: str) -> str | None:
        """The index that bears an alias; of two that a lost race left, the later one."""
        names = [name for name, of in answer.items() if alias in _aliases(of)]
        return max(names, key=_number, default=None)


def _aliases(answer: object) -> Iterable[str]:
    """Of one index in an answer, which beside indices may hold an error."""
    aliases = answer.get("aliases") if isinstance(answer, dict) else None
    return aliases if isinstance(aliases, dict) else ()


def _number(name: str | None) -> int:
    digits = (name or "").rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _other_version() -> Unavailable:
    return Unavailable("the search index was made by another version: rebuild it")


def not_building(name: str) -> NotFound:
    """The error of a generation that cannot be finished."""
    return NotFound(f"no generation '{name}' is being built")
