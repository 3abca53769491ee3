"""Fill a large catalog quickly with rows made by PostgreSQL."""

from sqlalchemy import text

from storage.catalog import Catalog
from storage.model import FQID

FILES = 200_000
BUNDLES = 20_000

_UUID = "CAST(md5('{salt}' || n) AS uuid)"
_VERSION = "'2026-01-01T000000.' || lpad(CAST(n % 1000000 AS text), 6, '0') || 'Z'"


def uuid_sql(salt: str) -> str:
    """The uuid of row `n` of a kind, in SQL."""
    return f"CAST({_UUID.format(salt=salt)} AS text)"


_FILLING = (
    "INSERT INTO blobs (sha256, sha1, crc32c, s3_etag, size) SELECT md5('b' || n) || md5('c' || n),"
    " md5('s' || n), 'cccccccc', md5('e' || n), n FROM generate_series(1, :files) AS n",
    f"INSERT INTO files (id, uuid, version, digest, origin, creator_uid, author, content_type,"
    f" s3_etag, blob_id, event_id, created_us, published_us) SELECT n, {uuid_sql('f')}, {_VERSION},"
    " 'd', 'aws', 1, 'a', 'text/plain', 'e', n, 'e' || n, n, n FROM generate_series(1, :files) AS n",
    f"INSERT INTO visible (kind, replica, uuid, version, id) SELECT 'file', r, {uuid_sql('f')},"
    f" {_VERSION}, n FROM generate_series(1, :files) AS n, unnest(ARRAY['aws']) AS r",
    "INSERT INTO presence (kind, id, replica, at_us) SELECT 'file', n, r, n"
    " FROM generate_series(1, :files / 2) AS n, unnest(ARRAY['aws']) AS r",
    "INSERT INTO blob_replicas (blob_id, replica, state, at_us) SELECT n, r, 'present', n"
    " FROM generate_series(1, :files / 2) AS n, unnest(ARRAY['aws']) AS r",
    f"INSERT INTO heads (kind, uuid) SELECT 'file', {uuid_sql('f')}"
    " FROM generate_series(1, :files / 4) AS n",
    f"INSERT INTO bundles (id, uuid, version, digest, origin, creator_uid, author, file_count,"
    f" event_id, created_us, published_us) SELECT n, {uuid_sql('b')}, {_VERSION}, 'd', 'aws', 1,"
    " 'a', 4, 'e' || n, n, n FROM generate_series(1, :bundles) AS n",
    f"INSERT INTO visible (kind, replica, uuid, version, id) SELECT 'bundle', r, {uuid_sql('b')},"
    f" {_VERSION}, n FROM generate_series(1, :bundles) AS n, unnest(ARRAY['aws', 'gcp']) AS r",
    "INSERT INTO segments (id, entry_count) SELECT n, 4 FROM generate_series(1, :bundles) AS n",
    "INSERT INTO bundle_segments (bundle_id, start, segment_id)"
    " SELECT n, 0, n FROM generate_series(1, :bundles) AS n",
    "INSERT INTO entries (segment_id, position, file_id, name, indexed)"
    " SELECT n, p, (n - 1) * 4 + p + 1, 'f' || p, false"
    " FROM generate_series(1, :bundles) AS n, generate_series(0, 3) AS p",
    "INSERT INTO documents (replica, bundle_id, state, shape, change, at_us)"
    " SELECT 'aws', n, 'indexed', 's', 1, n FROM generate_series(1, :bundles) AS n",
    f"INSERT INTO events (id, replica, type, uuid, version, bundle_id, at_us, seq, seq_us)"
    f" SELECT 'e' || n, 'aws', 'CREATE', {uuid_sql('b')}, {_VERSION}, n, n, n, n"
    " FROM generate_series(1, :bundles) AS n",
    "INSERT INTO todo (step, replica, ref, born_us, due_us)"
    f" SELECT s, 'aws', {uuid_sql('b')}, n, n"
    " FROM generate_series(1, :bundles) AS n, unnest(ARRAY['index', 'sync', 'match']) AS s",
    "INSERT INTO endpoints (id, address) SELECT n, 'http://h/' || n"
    " FROM generate_series(1, 1000) AS n",
    "INSERT INTO subscriptions (id, uuid, owner, replica, type, callback_url, method, encoding,"
    " form_fields, payload_form_field, endpoint_id, created_us)"
    " SELECT n, 's' || n, 'o' || n % 100, 'aws', 'jmespath', 'http://h/' || n, 'POST',"
    " 'application/json', '{}', 'payload', n, n FROM generate_series(1, 1000) AS n",
    *(
        "INSERT INTO deliveries (uuid, subscription_id, event_id, endpoint_id, event_type,"
        " bundle_uuid, bundle_version, payload, state, event_us, due_us, created_us, finished_us)"
        f" SELECT '{name}' || n, {whose}, '{name}' || n, {whose}, 'CREATE', {uuid_sql('b')},"
        f" {_VERSION}, '{{}}', state, n, n, n, CASE WHEN state <> 'pending' THEN n END"
        " FROM (SELECT n, CASE WHEN n % 2 = 0 THEN 'pending' WHEN n % 5 = 0 THEN 'failed'"
        " ELSE 'delivered' END AS state FROM generate_series(1, :bundles) AS n) AS made"
        # Many subscriptions, and one with very many deliveries.
        for name, whose in (("d", "n % 1000 + 1"), ("e", "7"))
    ),
    f"INSERT INTO tasks (id, uuid, version, replica, state, digest, source_url, pin, size,"
    f" content_type, creator_uid, author, sha1, sha256, crc32c, s3_etag, created_us, finished_us)"
    f" SELECT 't' || n, {uuid_sql('f')}, {_VERSION}, 'aws', 'SUCCEEDED', 'd', 'u', 'p', 1, 'c', 1,"
    " 'a', 's', md5('b' || n) || md5('c' || n), 'c', 'e', n, n FROM generate_series(1, :files / 4) AS n",
)


def fill(catalog: Catalog, *, files: int = FILES, bundles: int = BUNDLES) -> None:
    """Files that are whole in aws, bundles of four, and something of everything else."""
    with catalog.write() as tx:
        # Nothing here refers to what is not there: that need not be checked row by row.
        tx.execute(text("SET LOCAL session_replication_role TO replica"))
        for statement in _FILLING:
            tx.execute(text(statement), {"files": files, "bundles": bundles})


def some(catalog: Catalog, kind: str, count: int) -> list[FQID]:
    """Versions that readers of aws see, in no order."""
    query = (
        "SELECT uuid, version FROM visible WHERE kind = :kind AND replica = 'aws'"
        " ORDER BY md5(uuid) LIMIT :count"
    )
    with catalog.read() as tx:
        rows = tx.execute(text(query), {"kind": kind, "count": count})
        return [FQID(row.uuid, row.version) for row in rows]
