"""Rows of a catalog of any size on PostgreSQL, which makes them itself.

A bundle is complete in `aws`, every tenth also in `gcp`. It names two files; each file is in ten
bundles, as references and protocols are. What is left to do does not grow with what is kept: jobs
and pending deliveries are as many at every size.
"""

from collections.abc import Iterator

from sqlalchemy import BigInteger, text

from bench.scale_keys import CHUNK, OWNERS, VERSION
from storage.catalog import Catalog, Tx, migrate
from storage.catalog.tables import metadata

_VERSION = f"'{VERSION}'"

OPEN = 1_000
"""Jobs of each step, and pending deliveries."""
BORN_US = 1_767_225_600_000_000


def uuid_sql(salt: str) -> str:
    """The uuid of row `n` of a kind: as random as real ones, and the same every time."""
    return f"CAST(CAST(md5('{salt}' || n) AS uuid) AS text)"


_SERIES = "FROM generate_series(CAST(:first AS bigint), :last) AS n"
_FILES = "FROM generate_series(CAST(:first AS bigint) / 5 + 1, :last / 5) AS n"
_REPLICAS = "CROSS JOIN LATERAL (SELECT 'aws' AS r UNION ALL SELECT 'gcp' WHERE n % 10 = 0) AS one"
_AT = f"{BORN_US} + n * 1000"
_SUM = "md5('b' || n) || md5('c' || n)"
_FEW = "FROM generate_series(CAST(:first AS bigint) / 1000 + 1, :last / 1000) AS n"

FILLING = (
    f"INSERT INTO blobs (id, sha256, sha1, crc32c, s3_etag, size) SELECT n, {_SUM},"
    f" md5('s' || n) || 'ffffffff', 'cccccccc', md5('e' || n), n % 1000000 + 1 {_FILES}",
    f"INSERT INTO blob_replicas (blob_id, replica, state, at_us, verified_us)"
    f" SELECT n, r, 'present', {_AT}, {_AT} {_FILES} {_REPLICAS}",
    f"INSERT INTO files (id, uuid, version, digest, origin, creator_uid, author, content_type,"
    f" s3_etag, blob_id, event_id, created_us, published_us) SELECT n, {uuid_sql('f')}, {_VERSION},"
    f" {_SUM}, 'aws', 1, 'owner' || n % {OWNERS} || '@example.org', 'text/plain', md5('e' || n), n,"
    f" {uuid_sql('ef')}, {_AT}, {_AT} {_FILES}",
    f"INSERT INTO visible (kind, replica, uuid, version, id) SELECT 'file', r, {uuid_sql('f')},"
    f" {_VERSION}, n {_FILES} {_REPLICAS}",
    "INSERT INTO presence (kind, id, replica, at_us, verified_us)"
    f" SELECT 'file', n, r, {_AT}, {_AT} {_FILES} {_REPLICAS}",
    f"INSERT INTO heads (kind, uuid, changes) SELECT 'file', {uuid_sql('f')}, 1 {_FILES}",
    f"INSERT INTO bundles (id, uuid, version, digest, origin, creator_uid, author, file_count,"
    f" event_id, created_us, published_us) SELECT n, {uuid_sql('b')}, {_VERSION}, {_SUM}, 'aws', 1,"
    f" 'owner' || n % {OWNERS} || '@example.org', 2, {uuid_sql('e')}, {_AT}, {_AT} {_SERIES}",
    f"INSERT INTO visible (kind, replica, uuid, version, id) SELECT 'bundle', r, {uuid_sql('b')},"
    f" {_VERSION}, n {_SERIES} {_REPLICAS}",
    "INSERT INTO presence (kind, id, replica, at_us, verified_us)"
    f" SELECT 'bundle', n, r, {_AT}, {_AT} {_SERIES} {_REPLICAS}",
    f"INSERT INTO heads (kind, uuid, changes) SELECT 'bundle', {uuid_sql('b')}, 1 {_SERIES}",
    f"INSERT INTO segments (id, entry_count) SELECT n, 2 {_SERIES}",
    f"INSERT INTO bundle_segments (bundle_id, start, segment_id) SELECT n, 0, n {_SERIES}",
    "INSERT INTO entries (segment_id, position, file_id, name, indexed)"
    " SELECT n, p, (n * 2 + p) % greatest(:last / 5, 1) + 1, 'f' || p || '.json', p = 0"
    f" {_SERIES}, generate_series(0, 1) AS p",
    "INSERT INTO documents (replica, bundle_id, state, shape, change, at_us)"
    f" SELECT r, n, 'indexed', md5('shape'), 1, {_AT} {_SERIES} {_REPLICAS}",
    "INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us, seq, seq_us)"
    f" SELECT {uuid_sql('e')}, 'aws', 'CREATE', {uuid_sql('b')}, {_VERSION}, n, {_AT}, n, {_AT}"
    f" {_SERIES}",
    f"INSERT INTO endpoints (id, address) SELECT n, 'https://receiver.example:443/' || n {_FEW}",
    "INSERT INTO subscriptions (id, uuid, owner, replica, type, query, callback_url, method,"
    " encoding, form_fields, payload_form_field, endpoint_id, created_us)"
    f" SELECT n, {uuid_sql('s')}, 'owner' || n / 10 || '@example.org', 'aws', 'jmespath',"
    " 'bundle_info.uuid', 'https://receiver.example/' || n, 'POST', 'application/json', '{}',"
    f" 'payload', n, {_AT} {_FEW}",
    "INSERT INTO deliveries (id, uuid, subscription_id, event_id, endpoint_id, event_type,"
    " bundle_uuid, bundle_version, payload, state, attempts, event_us, due_us, created_us,"
    f" finished_us) SELECT n / 20, {uuid_sql('d')}, n / 20 % greatest(:last / 1000, 1) + 1,"
    f" {uuid_sql('e')}, n / 20 % greatest(:last / 1000, 1) + 1, 'CREATE', {uuid_sql('b')},"
    f" {_VERSION}, repeat('p', 200), CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'delivered' END, 1,"
    f" {_AT}, {_AT}, {_AT}, {_AT} {_SERIES} WHERE n % 20 = 0",
    "INSERT INTO attempts (delivery_id, number, at_us, seconds, status)"
    f" SELECT n / 20, 1, {_AT}, 0.1, 200 {_SERIES} WHERE n % 20 = 0",
    "INSERT INTO tasks (id, uuid, version, replica, state, digest, source_url, pin, size,"
    " content_type, creator_uid, author, sha1, sha256, crc32c, s3_etag, created_us, finished_us)"
    f" SELECT {uuid_sql('t')}, {uuid_sql('f')}, {_VERSION}, 'aws', 'SUCCEEDED', {_SUM},"
    " 's3://source/file', 'pin', 1, 'text/plain', 1, 'owner1@example.org', md5('s' || n),"
    f" {_SUM}, 'cccccccc', md5('e' || n), {_AT}, {_AT} {_FILES} WHERE n % 10 = 0",
    "INSERT INTO collections (id, uuid, version, digest, origin, owner, name, description,"
    f" details, event_id, created_us, published_us) SELECT n, {uuid_sql('k')}, {_VERSION},"
    f" 'd', 'aws', 'owner' || n % {OWNERS} || '@example.org', 'name', '', '{{}}',"
    f" {uuid_sql('ek')}, {_AT}, {_AT} {_FEW}",
    f"INSERT INTO owned (owner, uuid, version) SELECT 'owner' || n % {OWNERS} || '@example.org',"
    f" {uuid_sql('k')}, {_VERSION} {_FEW}",
    f"INSERT INTO visible (kind, replica, uuid, version, id) SELECT 'collection', 'aws',"
    f" {uuid_sql('k')}, {_VERSION}, n {_FEW}",
    "INSERT INTO areas (uuid, owner, state, created_us)"
    f" SELECT {uuid_sql('a')}, 'owner' || n % {OWNERS} || '@example.org', 'UNLOCKED', {_AT} {_FEW}",
    "INSERT INTO area_files (area, name, generation, pin, size, content_type, status, validation,"
    f" created_us, changed_us) SELECT {uuid_sql('a')}, 'f' || p, 1, 'p', 1, 'c', 'CHECKSUMMED',"
    f" 'UNSCHEDULED', {_AT}, {_AT} {_FEW}, generate_series(1, 10) AS p",
    "INSERT INTO journals (replica, first_seq, last_seq, generation, tier, state, size, at_us)"
    f" SELECT 'aws', n * 1000 - 999, n * 1000, 0, 1, 'current', 1000, {_AT} {_FEW}",
    "INSERT INTO accounts (kind, id, created_us, changed_us)"
    f" SELECT 'user', 'owner' || n || '@example.org', {_AT}, {_AT} {_FEW}",
    "INSERT INTO memberships (member_kind, member, kind, name)"
    f" SELECT 'user', 'owner' || n || '@example.org', 'group', 'group' || n % 10 {_FEW}",
    "INSERT INTO audit (uuid, at_us, who, what, target, request_id)"
    f" SELECT {uuid_sql('u')}, {_AT}, 'owner1@example.org', 'account.create', 'owner' || n, ''"
    f" {_FEW}",
)
OPEN_FILLING = (
    "INSERT INTO todo (step, replica, ref, born_us, due_us, token, attempts, parked_us, reason)"
    f" SELECT s, 'aws', {uuid_sql('b')} || '.' || {_VERSION}, {_AT}, {_AT}, NULL, n % 2,"
    f" CASE WHEN n % 100 = 0 THEN {_AT} END, CASE WHEN n % 100 = 0 THEN 'failed' END"
    " FROM generate_series(1, :open) AS n, unnest(ARRAY['index', 'match', 'sync']) AS s",
    "INSERT INTO deliveries (id, uuid, subscription_id, event_id, endpoint_id, event_type,"
    " bundle_uuid, bundle_version, payload, state, event_us, due_us, created_us)"
    f" SELECT :last + n, {uuid_sql('p')}, 1, {uuid_sql('ep')}, 1, 'CREATE', {uuid_sql('b')},"
    f" {_VERSION}, '{{}}', 'pending', {_AT}, {_AT}, {_AT} FROM generate_series(1, :open) AS n",
    "UPDATE documents SET state = 'unindexed', reason = 'refused' WHERE bundle_id <= 20",
)


def fill(catalog: Catalog, bundles: int) -> None:
    """Migrate a new catalog and fill it; the planner knows it, and nothing is left to vacuum.

    Indexes and constraints are dropped and made again after the rows, which takes a tenth of the
    time: they are as dense as after a REINDEX.
    """
    migrate.upgrade(catalog)
    with catalog.write() as tx:
        # Not logged: after a crash the server would empty them, and nothing is written twice.
        for table in reversed(metadata.sorted_tables):
            tx.execute(text(f"ALTER TABLE {table} SET UNLOGGED"))
            tx.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = false)"))
        again = _drop_indexes(tx)
    for statement in FILLING:
        for first, last in _ranges(bundles):
            _run(catalog, statement, first=first, last=last)
    for statement in OPEN_FILLING:
        _run(catalog, statement, last=bundles, open=min(OPEN, bundles // 10))
    for statement in again:
        _run(catalog, statement)
    with catalog.write() as tx:
        for table in metadata.sorted_tables:
            if "id" in table.columns and isinstance(table.c.id.type, BigInteger):
                last_id = f"(SELECT coalesce(max(id), 0) + 1 FROM {table})"
                serial = f"pg_get_serial_sequence('{table}', 'id')"
                tx.execute(text(f"SELECT setval({serial}, {last_id})"))
    with catalog.engine.connect() as connection:
        # The driver commits by itself, and a vacuum must not be inside of a transaction.
        connection.exec_driver_sql("VACUUM ANALYZE")


def _drop_indexes(tx: Tx) -> list[str]:
    """Drop all indexes and constraints; return the statements that make them again, in order."""
    again = []
    # Foreign keys last: what they refer to needs its key.
    for name, table, definition, kind in reversed(tx.execute(text(_CONSTRAINTS)).all()):
        tx.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {name}"))
        unchecked = " NOT VALID" if kind == "f" else ""
        again.append(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}{unchecked}")
    for name, definition in tx.execute(text(_INDEXES)).all():
        tx.execute(text(f"DROP INDEX {name}"))
        again.append(definition)
    return sorted(again, key=lambda statement: "FOREIGN KEY" in statement)


_TABLES = "(SELECT oid FROM pg_class WHERE relnamespace = CAST('public' AS regnamespace))"
_CONSTRAINTS = (
    "SELECT conname, CAST(conrelid AS regclass), pg_get_constraintdef(oid), contype"
    f" FROM pg_constraint WHERE conrelid IN {_TABLES} AND contype IN ('f', 'p', 'u')"
    " ORDER BY contype = 'f'"
)
_INDEXES = (
    "SELECT CAST(indexrelid AS regclass), pg_get_indexdef(indexrelid)"
    f" FROM pg_index WHERE indrelid IN {_TABLES} ORDER BY indexrelid"
)


def _run(catalog: Catalog, statement: str, **given: int) -> None:
    with catalog.write() as tx:
        # Nothing here refers to what is not there: that need not be checked row by row.
        tx.execute(text("SET LOCAL session_replication_role TO replica"))
        tx.execute(text("SET LOCAL maintenance_work_mem TO '512MB'"))
        tx.execute(text(statement), given)


def _ranges(bundles: int) -> Iterator[tuple[int, int]]:
    """Whole chunks, so that every statement divides them without rest."""
    for first in range(0, bundles, CHUNK):
        yield first + 1, min(first + CHUNK, bundles)
