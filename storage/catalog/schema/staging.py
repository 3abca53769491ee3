"""Tables of upload areas: whose they are, what lies in them, what is still on its way into them."""

from sqlalchemy import BigInteger, Column, Index, Table, Text

from storage.catalog.schema.base import Key, metadata, narrow

areas = Table(
    "areas",
    metadata,
    Column("uuid", Key, primary_key=True),
    Column("owner", Key, nullable=False),
    Column("state", Key, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("granted_us", BigInteger),
    Column("deleted_us", BigInteger),
    Index("ix_areas_owner", "owner"),
)
"""`granted_us`: until then somebody may hold credentials to write into it past the store."""

area_files = narrow(
    "area_files",
    Column("area", Key, primary_key=True),
    Column("name", Key, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("pin", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("sha1", Text),
    Column("sha256", Text),
    Column("crc32c", Text),
    Column("s3_etag", Text),
    Column("status", Key, nullable=False),
    Column("validation", Key, nullable=False),
    Column("cause", Text),
    Column("declared", Text),
    Column("created_us", BigInteger, nullable=False),
    Column("changed_us", BigInteger, nullable=False),
)
"""What was said to lie in an area. Each time that it is said to be there is another `generation`:
what was found of an earlier one is not written over a later one. `declared` is what its uploader
said of it, as JSON."""

area_uploads = narrow(
    "area_uploads",
    Column("id", Key, primary_key=True),
    Column("area", Key, nullable=False),
    Column("name", Key, nullable=False),
    Column("token", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("part_size", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Index("ix_area_uploads_area_name", "area", "name"),
    Index("ix_area_uploads_at_us", "at_us"),
)
"""Files that come by parts, of which some may be missing; `token` is the bucket's own name of it,
`at_us` when it was touched last."""
