"""Fragments of JSON files: what a JSON Pointer (RFC 6901) leads to, and files written whole."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from store_client.errors import Damaged, StoreError
from store_client.replacing import write_whole

_PLAIN = re.compile(r"[a-z0-9_-]{1,80}")
_INDEX = re.compile(r"0|[1-9][0-9]*")


def resolve(path: Path, pointer: str, name: str) -> bytes:
    """The value, as JSON text; Damaged when the file has none there, or is no JSON."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{name} is no JSON, so that no fragment of it can be had") from error
    try:
        found = follow(value, pointer)
    except LookupError:
        raise Damaged(f"{name} has nothing at {pointer!r}") from None
    return json.dumps(found, ensure_ascii=False, indent=2).encode("utf-8", "surrogatepass") + b"\n"


def follow(value: Any, pointer: str) -> Any:
    """What a pointer leads to in a value; LookupError when nothing."""
    if pointer and not pointer.startswith("/"):
        raise LookupError(pointer)
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value[token]
        elif isinstance(value, list) and _INDEX.fullmatch(token) and len(token) < 10:
            value = value[int(token)]
        else:
            raise LookupError(pointer)
    return value


def name_of(fqid: str, pointer: str) -> str:
    """What the file of a fragment is called: after its pointer as far as names go."""
    if not pointer:
        return f"{fqid}.json"
    said = quote(pointer.removeprefix("/").replace("/", "-"), safe="")
    if pointer.count("/") == 1 and _PLAIN.fullmatch(said):
        return f"{fqid}.{said}.json"
    # Others may look like this one when they are shortened, or where case makes no difference.
    return f"{fqid}.{said[:60]}.{hashlib.sha256(pointer.encode()).hexdigest()[:12]}.json"


def put(path: Path, data: bytes) -> None:
    """Write a small file at one instant, unless it is there and the same."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_bytes() == data:
            return
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    write_whole(path, data)
