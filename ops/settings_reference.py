"""The commands `settings`, `settings check` and `settings example`.

`check` also knows which combinations of settings make no sense for a kind of deployment.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import click

from auth.authorization import parse_closed_operations
from auth.tokens.verification import require_token_algorithms
from config import Settings
from config.loading import LoadedSettings, read_all_settings, variable_of
from config.parsing import URL_SCHEMES
from config.reference import list_current_values, render_example
from config.settings import FILE_VARIABLE, SettingsError, is_loopback
from ops.output import CommandOutput, OutputTable, prints_state
from storage.connect import check_secrets
from storage.engines import open_bucket, open_schemas, open_search_index
from storage.errors import DomainError, explain_error
from storage.model import MIN_SECRET_LENGTH, REPLICAS

BUCKETS = ("replica_aws", "replica_gcp", "areas_url", "checkout_aws", "checkout_gcp")

EMBEDDED, MACHINE, MACHINES = "embedded", "machine", "machines"
KINDS = {
    EMBEDDED: "embedded store",
    MACHINE: "one machine with engines",
    MACHINES: "many machines, or a cloud",
}


@click.group(name="settings", invoke_without_command=True)
@click.pass_context
@prints_state
def settings_commands(context: click.Context) -> CommandOutput | None:
    """Print every setting with its value and where it came from."""
    if context.invoked_subcommand is not None:
        return None
    loaded = read_all_settings(os.environ)
    if loaded.problems:
        raise SettingsError("\n".join(loaded.problems))
    columns = ("variable", "value", "source", "meaning")
    return CommandOutput(OutputTable("Settings", columns, _list_rows(loaded)))


def _list_rows(loaded: LoadedSettings) -> list[tuple[str, str, str, str]]:
    names = vars(Settings())
    values = list_current_values(loaded.settings)
    return [
        (variable, value, loaded.sources.get(name, "default"), about)
        for name, (variable, value, about) in zip(names, values, strict=True)
    ]


@settings_commands.command()
@click.argument("file", required=False)
@prints_state
def check(file: str | None) -> CommandOutput:
    """Report everything that is wrong with the settings.

    FILE is read instead of the file that STORE_SETTINGS_FILE names. The exit code is 0 if nothing
    is wrong, otherwise 1. Nothing is started.
    """
    loaded = read_all_settings({**os.environ, **({FILE_VARIABLE: file} if file else {})})
    problems = loaded.problems + find_conflicts(loaded.settings)
    problems += _list_unusable(loaded.settings)
    kind, count = find_kind(loaded.settings), len(loaded.sources)
    value = {"kind": kind, "set": count, "problems": problems}
    if problems:
        error = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        return CommandOutput(value, text="\n".join(problems), error=error)
    return CommandOutput(value, text=f"no problem: {KINDS[kind]}, {count} settings are set")


def _list_unusable(settings: Settings) -> Iterator[str]:
    """Yield what would stop the start although each value is possible; nothing is connected."""
    keyed = replace(settings, secret_key=settings.secret_key or "-" * MIN_SECRET_LENGTH)
    checks: list[Callable[[], object]] = [
        partial(check_secrets, keyed),
        partial(open_schemas, settings),
        partial(parse_closed_operations, settings.closed_operations),
        partial(require_token_algorithms, settings.token_algorithms),
    ]
    if settings.search_url.lower().startswith(URL_SCHEMES["search_url"]):
        checks.append(partial(open_search_index, settings, REPLICAS[0]))
    for check_one in checks:
        try:
            check_one()
        except (SettingsError, DomainError) as error:
            yield explain_error(error)
    if settings.web_logo and not Path(settings.web_logo).is_file():
        yield _name("web_logo") + f"there is no file {settings.web_logo}"
    for name in (*BUCKETS, "backup_target"):
        url = getattr(settings, name)
        try:
            if url.startswith(("s3://", "gs://")):
                open_bucket(keyed, name, url)
        except SettingsError as error:
            yield _name(name) + str(error)


@settings_commands.command()
def example() -> None:
    """Print a settings file with every setting, its meaning and its default."""
    click.echo(render_example())


def find_kind(settings: Settings) -> str:
    """Return the kind that the settings describe, by their queue."""
    if not settings.redis_url:
        return EMBEDDED
    host = urlsplit(settings.redis_url).hostname
    return MACHINE if host is None or is_loopback(host) else MACHINES


def find_conflicts(settings: Settings) -> list[str]:
    """Return combinations of settings that make no sense, also for this kind of deployment."""
    own_accounts = not settings.policies_url and not settings.issuers
    conflicts = (
        (
            settings.ops_port in (settings.port, settings.port + 1),
            "ops_port",
            "is a port of the HTTP services (STORE_PORT and the next one)",
        ),
        (
            bool(settings.metrics_port)
            and settings.metrics_port in (settings.port, settings.port + 1, settings.ops_port),
            "metrics_port",
            "is a port of the HTTP services (STORE_PORT, the next one, or STORE_OPS_PORT)",
        ),
        (
            settings.bucket("aws") == settings.bucket("gcp"),
            "replica_gcp",
            "is the bucket of replica aws, so there would be one copy of the data",
        ),
        (
            bool(settings.areas_role_arn) and not settings.areas_url.startswith("s3://"),
            "areas_role_arn",
            "is for upload areas in an s3:// bucket",
        ),
        (settings.wait_s > settings.wait_cap_s, "wait_s", "is longer than STORE_WAIT_CAP_S"),
        (
            settings.session_idle_s > settings.session_s,
            "session_idle_s",
            "is longer than STORE_SESSION_S",
        ),
        (
            bool(settings.policies_url) != bool(settings.policies_credentials),
            "policies_url",
            "needs STORE_POLICIES_CREDENTIALS, and the other way round",
        ),
        (
            not settings.provider_secrets.keys() <= settings.providers.keys(),
            "provider_secrets",
            "names a provider that is not in STORE_PROVIDERS",
        ),
        (
            own_accounts and not settings.local_logins and not settings.providers,
            "local_logins",
            "is false and STORE_PROVIDERS is empty, so no login is possible",
        ),
    )
    found = [_name(name) + problem for is_wrong, name, problem in conflicts if is_wrong]
    return found + [*_list_missing_engines(settings)] * (find_kind(settings) == MACHINES)


def _list_missing_engines(settings: Settings) -> Iterator[str]:
    """Yield what several machines cannot share."""
    for name in ("catalog_url", "search_url", "secret_key", "external_url", "auth_external_url"):
        if not getattr(settings, name):
            yield _name(name) + "must be set when Redis is on another machine"
    for name in ("replica_aws", "replica_gcp", "areas_url"):
        url = getattr(settings, name)
        if not url or url.startswith("file://"):
            yield _name(name) + "must be a bucket when Redis is on another machine"
    if settings.external_url.startswith("https://") and settings.proxies == 0:
        yield (
            _name("proxies")
            + "is 0, although STORE_EXTERNAL_URL is served by a proxy: all clients seem to have the"
            " proxy's address"
        )


def _name(name: str) -> str:
    return f"{variable_of(name)}: "
