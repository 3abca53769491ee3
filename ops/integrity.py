"""The commands `verify`, `fixity-report` and `purge`.

A fixity report is one JWS (RFC 7515, compact form) per line, signed with the key that signs tokens.
Each line lists up to 250 objects and names the SHA-256 of the line before; the last one says so.
So a report of any size is written and checked as a stream, and no line can be lost, moved or
exchanged.
"""

import hashlib
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TextIO

import click

from auth.tokens.issuance import sign_claims, verify_own_claims
from auth.tokens.signing_keys import SigningKeys, read_keys_until, read_signing_keys
from config import Settings
from ops.commands import open_stores, select_replicas
from ops.options import FiniteRange, PrintableText
from ops.output import CommandOutput, OutputTable, print_output, prints_output
from pipelines import bundles, collections, fixity, purges, scrub
from pipelines.fixity import FixityReport, ObjectFixity
from pipelines.formats import parse_uuid, parse_version, version_from_us
from pipelines.recovery import epochs
from storage import keys as object_keys
from storage.catalog import purges as catalog_purges
from storage.errors import ConflictError, Unauthorized
from storage.model import REPLICAS
from storage.stores import Stores

REPORT_TYPE = "fixity-report+jwt"
"""The `typ` of its header, so that no line is taken for a token."""
OBJECTS_PER_LINE = 250
"""Objects of one line, which JOSE libraries accept in their default limits."""
KEY_PUBLISHED_S = 366 * 86_400
"""How long the key that signed a report stays published, at least."""

SignClaims = Callable[[dict[str, Any]], str]


class BrokenReport(Exception):
    """A report is incomplete or was changed; the text says where."""


@click.command()
@click.option("--replica", type=click.Choice(REPLICAS), help="Only this one.")
@click.option(
    "--sample", default=100.0, type=FiniteRange(0, 100), show_default=True, help="Per cent."
)
@click.option("--repair", is_flag=True, help="Repair damaged objects from the other replica.")
@click.pass_obj
@prints_output
def verify(settings: Settings, replica: str | None, sample: float, repair: bool) -> CommandOutput:
    """Read stored objects again and compare their checksums.

    Exit code 1 means that damage is left. It reads every byte, or a --sample.
    """
    stores = open_stores(settings)
    done = [
        scrub.verify_replica(stores, name, rng=Random(), share=sample / 100, repair=repair)
        for name in select_replicas(replica)
    ]
    rows = [(one.replica, one.objects, one.size, len(one.damaged)) for one in done]
    found = [each for one in done for each in one.damaged]
    damage = [(each.key, each.replica, each.reason, each.repaired) for each in found]
    left = sum(not each.repaired for each in found)
    return CommandOutput(
        {
            "verified": OutputTable("Verified", ("replica", "objects", "bytes", "damaged"), rows),
            "damaged": OutputTable(
                "Damaged", ("object", "replica", "why", "repaired"), damage, hidden_if_empty=True
            ),
        },
        error=f"{left} damaged objects are left." if left else "",
    )


# Fixity report


@click.command("fixity-report")
@click.option("--output", type=click.Path(path_type=Path), help="A file; default: stdout.")
@click.option(
    "--check",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Check the signatures of this report instead of writing one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result of --check as JSON.")
@click.pass_obj
def fixity_report(
    settings: Settings, output: Path | None, check: Path | None, as_json: bool
) -> None:
    """Write a signed list of all objects.

    Each line is a JWS that the published keys verify (see docs/operations.md, "Fixity report").
    """
    if check is not None:
        print_output(_check_file(settings, check), as_json=as_json)
        return
    if as_json:
        raise click.UsageError("A report is lines of JWS: --json is for --check.")
    stores = open_stores(settings)
    now = time.time()
    keys = read_keys_until(settings.home, now + KEY_PUBLISHED_S, settings.secret_keys)
    head = {"iss": settings.auth_url, "iat": int(now), "report": str(uuid.uuid4())}
    counts = fixity.build_report(stores, period_days=settings.scrub_period_days)
    with _open_output(output) as stream:
        for line in build_report_lines(
            fixity.list_object_fixity(stores),
            counts,
            lambda claims: sign_claims(keys, {**head, **claims}, kind=REPORT_TYPE),
        ):
            stream.write(line + "\n")


@contextmanager
def _open_output(output: Path | None) -> Iterator[TextIO]:
    """A file that is there only when it is complete."""
    if output is None:
        yield sys.stdout
        return
    part = output.with_name(output.name + ".part")
    try:
        with part.open("w", encoding="ascii") as stream:
            yield stream
        part.replace(output)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            reason = f"{output} cannot be written: {error.strerror or error}"
            raise click.ClickException(reason) from error
        raise


def build_report_lines(
    objects: Iterable[ObjectFixity], counts: FixityReport, signed: SignClaims
) -> Iterator[str]:
    """The lines of a report; the last has the counts of each replica."""
    number, previous, rest = 1, "", iter(objects)
    page, following = list(islice(rest, OBJECTS_PER_LINE)), list(islice(rest, OBJECTS_PER_LINE))
    while following:
        line = signed(_build_claims(number, previous, page))
        yield line
        number, previous = number + 1, _digest_line(line)
        page, following = following, list(islice(rest, OBJECTS_PER_LINE))
    totals = {"last": True, "at": version_from_us(counts.at_us), "replicas": _build_totals(counts)}
    yield signed({**_build_claims(number, previous, page), **totals})


def _build_claims(number: int, previous: str, page: list[ObjectFixity]) -> dict[str, Any]:
    listed = [_build_object_claims(one) for one in page]
    return {"page": number, "previous": previous, "last": False, "objects": listed}


def _build_object_claims(one: ObjectFixity) -> dict[str, Any]:
    stored = one.stored
    at = version_from_us(stored.verified_us) if stored.verified_us else None
    found: dict[str, Any] = {
        "replica": stored.replica,
        "key": stored.key,
        "sha256": one.sha256,
        "verified": at,
    }
    if stored.size is not None:
        found["size"] = stored.size
    return found if one.damage is None else {**found, "damage": one.damage}


def _build_totals(counts: FixityReport) -> dict[str, Any]:
    return {
        name: {
            "objects": one.objects,
            "verified": one.verified,
            "damaged": one.damaged,
            "repaired": one.repaired,
        }
        for name, one in counts.replicas.items()
    }


def _digest_line(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def _check_file(settings: Settings, path: Path) -> CommandOutput:
    try:
        with path.open(encoding="ascii") as stream:
            found = check_report(stream, read_signing_keys(settings.home, settings.secret_keys))
    except (BrokenReport, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    damaged = sum(found["replicas"][name]["damaged"] for name in REPLICAS)
    return CommandOutput(
        {
            "objects": found["listed"],
            "lines": found["page"],
            "damaged": damaged,
            "at": found["at"],
        },
        f"{path}: {found['listed']} objects in {found['page']} lines, {damaged} damaged,"
        f" as of {found['at']}. All signatures are right.",
    )


def check_report(stream: Iterable[str], keys: SigningKeys) -> dict[str, Any]:
    """Check a report line by line; returns the last line's claims, and how many objects are
    `listed` in all. BrokenReport says what is wrong with which line."""
    number, listed, previous = 0, 0, ""
    report, last = "", None
    for number, text in enumerate(stream, start=1):
        line = text.rstrip("\n")
        if last is not None:
            raise BrokenReport(f"line {number}: follows the last page")
        claims = _verify_line(line, number, keys)
        if claims["page"] != number or claims["previous"] != previous:
            raise BrokenReport(f"line {number}: a page is missing before it, or was moved")
        if number > 1 and claims["report"] != report:
            raise BrokenReport(f"line {number}: is of another report")
        report, previous = claims["report"], _digest_line(line)
        listed += len(claims["objects"])
        last = claims if claims["last"] else None
    if last is None:
        raise BrokenReport(f"the report ends after line {number}, before its last page")
    return {**last, "listed": listed}


def _verify_line(line: str, number: int, keys: SigningKeys) -> dict[str, Any]:
    try:
        return verify_own_claims(keys, line, kind=REPORT_TYPE)
    except Unauthorized as error:
        raise BrokenReport(f"line {number}: {error.detail}") from error


# Purge


@click.command()
@click.argument("name", metavar="[collection:]UUID[.VERSION]")
@click.option(
    "--reason",
    type=PrintableText(),
    required=True,
    help="The reason, written into the markers in every bucket.",
)
@click.option(
    "--author",
    type=PrintableText(),
    default="operator",
    show_default=True,
    help="Who requested it.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--force", is_flag=True, help="Delete it first if it is not deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
@prints_output
def purge(
    settings: Settings, name: str, reason: str, author: str, dry_run: bool, force: bool, yes: bool
) -> CommandOutput:
    """Remove a bundle or a collection for good.

    UUID.VERSION is one version of a bundle, UUID all of them, with the files that only it names.
    collection:UUID is a collection with all its versions. It must be deleted already, and its name
    can never be used again. Asks first; repeat it to continue an unfinished purge. `status` shows
    the progress.
    """
    stores = open_stores(settings)
    doomed = _parse_target(name)
    extent = purges.measure_extent(stores, doomed.uuid, doomed.version, kind=doomed.kind)
    described = _describe_extent(doomed, extent)
    if dry_run:
        return _build_purge_output(doomed, extent, described, ordered=False)
    if not extent.has_tombstone and not force:
        raise click.ClickException("It is not under a tombstone: delete it first, or --force.")
    if not yes:
        click.echo(described, err=True)
        click.confirm("Remove all this for good?", abort=True, err=True)
    if in_doubt := epochs.check_epoch(stores):
        raise ConflictError(in_doubt, code="read_only")
    if force and not extent.has_tombstone:
        _write_tombstone(stores, doomed, reason=reason, author=author)
    going_on = _order_purge(stores, doomed, reason=reason, author=author)
    ordered = f"Ordered; the workers do it. {going_on} purges go on, `ops status` shows how far."
    text = f"{described}\n{ordered}" if yes else ordered
    return _build_purge_output(doomed, extent, text, ordered=True)


def _build_purge_output(
    doomed: "_PurgeTarget", extent: purges.PurgeExtent, text: str, *, ordered: bool
) -> CommandOutput:
    members = {
        "kind": doomed.kind,
        "versions": [str(fqid) for fqid in extent.versions],
        "files": extent.files,
        "kept_files": extent.kept_files,
        "ordered": ordered,
    }
    return CommandOutput(members, text)


class _PurgeTarget(NamedTuple):
    kind: object_keys.Kind
    uuid: str
    version: str | None


def _parse_target(name: str) -> _PurgeTarget:
    kind, colon, named = name.rpartition(":")
    uuid, _, version = named.partition(".")
    if not colon:
        return _PurgeTarget(
            bundles.KIND, parse_uuid(uuid), parse_version(version) if version else None
        )
    if kind != collections.KIND or version:
        raise click.BadParameter("A bundle is named by its uuid, a collection by collection:UUID.")
    return _PurgeTarget(collections.KIND, parse_uuid(uuid), None)


def _describe_extent(doomed: _PurgeTarget, extent: purges.PurgeExtent) -> str:
    lines = [f"{doomed.kind} {fqid}" for fqid in extent.versions]
    files = f"{extent.files} files that nothing else names; {extent.kept_files} others stay"
    return "\n".join([*lines, files])


def _write_tombstone(stores: Stores, doomed: _PurgeTarget, *, reason: str, author: str) -> None:
    if doomed.kind == collections.KIND:
        collections.delete_as_owner(stores, doomed.uuid)
    else:
        grave = doomed.uuid, doomed.version
        bundles.delete(stores, REPLICAS[0], *grave, reason=reason, author=author)


def _order_purge(stores: Stores, doomed: _PurgeTarget, *, reason: str, author: str) -> int:
    """Order it; return how many purges are unfinished."""
    purges.order_purge(
        stores, doomed.uuid, doomed.version, reason=reason, author=author, kind=doomed.kind
    )
    with stores.catalog.read() as tx:
        return len(catalog_purges.list_unfinished(tx, limit=1000))
