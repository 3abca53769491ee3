"""SSRF: every module that opens connections is in the table of outgoing connections."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "decisions" / "0035-outgoing-connections.md"
ROOMS = ("config", "storage", "pipelines", "auth", "workers", "api", "web", "ops")
CLIENTS = {
    "aiohttp.ClientSession",
    "boto3.session",
    "ftplib",
    "google.cloud.storage",
    "http.client",
    "httpcore.ConnectionPool",
    "httpx.AsyncClient",
    "httpx.Client",
    "httpx.get",
    "httpx.post",
    "opensearchpy.OpenSearch",
    "redis.Redis",
    "requests",
    "smtplib",
    "socket.create_connection",
    "urllib.request.urlopen",
    "urllib3.HTTPConnectionPool",
    "urllib3.PoolManager",
}
"""What opens connections, by the names that code imports or calls."""


def names_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def opens_connections(path: Path) -> bool:
    return not CLIENTS.isdisjoint(names_in(path))


def test_every_module_that_opens_connections_is_in_the_table() -> None:
    listed = set(re.findall(r"`(\w+/[\w/]+\.py)`", TABLE.read_text(encoding="utf-8")))
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in sources if opens_connections(path)}
    assert found - listed == set(), "say who chooses the address, and what guards it"
    assert {name for name in listed if not (ROOT / name).exists()} == set()


def test_a_new_client_is_noticed(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    for line in ("import smtplib", "import httpx\nhttpx.get('x')", "from redis import Redis"):
        module.write_text(line)
        assert opens_connections(module)
    module.write_text("import httpx\n\nerror = httpx.HTTPError")
    assert not opens_connections(module)
