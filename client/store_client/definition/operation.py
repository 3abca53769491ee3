"""An operation of a store, and what it takes."""

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Place = Literal["path", "query", "body"]
Service = Literal["store", "auth"]
TokenUse = Literal["no", "may", "must"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument; `schema` holds no references."""

    name: str
    place: Place
    required: bool
    schema: Mapping[str, Any]
    about: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; `url` is absolute, with parameters of the path in braces."""

    name: str
    service: Service
    method: str
    url: str
    summary: str = ""
    about: str = ""
    parameters: tuple[Parameter, ...] = ()
    paged: str = ""
    """Where in a page its items are: `bundle.files`; "" when there is only one page."""
    upload: bool = False
    """The body is bytes, and is called `content`."""
    form: bool = False
    token: TokenUse = "no"
    keyed: bool = False
    """An `Idempotency-Key` makes it one that may be sent twice."""

    @property
    def command(self) -> str:
        """Its name as a command."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-")

    @property
    def method_name(self) -> str:
        """Its name in Python."""
        name = re.sub(r"\W", "_", self.name)
        return f"{name}_" if keyword.iskeyword(name) or name[:1].isdigit() else name

    def placed(self, place: Place) -> tuple[Parameter, ...]:
        """The parameters there."""
        return tuple(one for one in self.parameters if one.place == place)


@dataclass(frozen=True, slots=True)
class Definition:
    """Everything that one store and its authorization service can be asked."""

    operations: Mapping[str, Operation]
    title: str = ""
    about: str = ""
    auth_url: str | None = None
    fetched: float = field(default=0.0, compare=False)
    """Seconds since 1970, when it was last known to be the served one."""
    named: Mapping[str, Operation] = field(default_factory=dict, repr=False, compare=False)

    def find(self, name: str) -> Operation | None:
        """By its name, its name as a command, or in Python."""
        return self.named.get(name)
