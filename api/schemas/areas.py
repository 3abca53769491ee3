"""Upload areas: what their operations answer."""

from marshmallow import fields

from api.schemas.common import Shown


class AreaCreated(Shown):
    """The answer of post_area."""

    uri = fields.String(required=True)


class AreaChecksums(Shown):
    """What the bytes came to."""

    sha1 = fields.String(required=True)
    sha256 = fields.String(required=True)
    crc32c = fields.String(required=True)
    s3_etag = fields.String(required=True)


class AreaFile(Shown):
    """The answer of put_area_file; `url` may be a `source_url` at once."""

    url = fields.String(required=True)
    size = fields.Integer(required=True)
    checksums = fields.Nested(AreaChecksums, required=True)
