"""Limits of the specification, each with its clause, and our own shared limits.

Operators' numbers are in `config`.
"""

MB = 1_048_576  # Limits: "MB for entity tag chunking"
ETAG_CHUNK = 64 * MB  # File: `store-s3_etag` uses 64 MB chunks …
ETAG_CHUNK_MAX_SIZE = 640_000 * MB  # … for files up to 640,000 MB
ETAG_MAX_PARTS = 10_000  # beyond: size / 10000 rounded up to a whole MB

MAX_INDEXED_FILES = 20_000  # Bundle rule 4: a larger manifest is left out of the document
ATTACHMENTS_MAX_BYTES = 128 * 1024  # Events 6: serialized `attachments`

PAGE_MAX = 500  # Limits: page size maximum
PAGE_RAW_MAX = 10  # Parameter rule 5: post_search with output_format raw
PAGE_BUNDLE = 500  # Limits: default per_page of get_bundle …
PAGE_BUNDLES_ALL = 100  # … get_bundles_all, and ours of get_file_bundles
PAGE_COLLECTIONS = 500  # … get_collections
PAGE_SEARCH = 100  # … post_search
FACET_FIELDS_MAX = 20  # ours: fields of one facet request, …
FACET_VALUES = 10  # … values of each by default, …
FACET_VALUES_MAX = 100  # … and at most
MANIFEST_BUNDLES_MAX = 10_000  # ours: bundles of a manifest of search results, …
MANIFEST_LINES_MAX = 1_000_000  # … and lines of it
FIELD_NAME_MAX = 1_000  # ours: characters of a field's name in requests for facets and fields
PAGE_FIELDS = 100  # ours: default per_page of get_search_fields
PAGE_EVENTS = 1  # … get_events
PAGE_EVENTS_MAX = 10  # Interface 1: events 1..10
PAGE_AREA = 500  # ours: default per_page of get_area
PAGE_FEED = 100  # ours: events of one answer of the live feed

FILES_MAX = 100  # ours: file versions of one request

AREA_NAME_MAX_BYTES = (
    857  # ours: bytes that an object's key leaves for a file's name in an upload area
)
AREA_URLS_MAX = 1_000  # ours: URLs for an upload area that one request signs

COLLECTION_ITEMS_MAX = 1_000  # Limits: items of a collection in a create, add or remove
COLLECTION_NAME_MAX = 1_024  # ours: characters of a collection's name, …
COLLECTION_DESCRIPTION_MAX = 65_536  # … of its description, …
COLLECTION_DETAILS_MAX_BYTES = 256 * 1024  # … and bytes of its details as JSON
LINK_PATH_MAX = 4_096  # ours: characters of a link's path
LINK_TYPE_MAX = 256  # ours: characters of a link's type
PATCH_MAX = 1_000  # ours, as for collections: entries that one patch adds, or removes
SEGMENT_ENTRIES = 1_024  # ours: entries of one shared segment of a manifest
DRY_RUN_BUNDLES_MAX = 1_000  # ours: bundles of one dry run, …
DRY_RUN_PAYLOADS_MAX = 50  # … and payloads of its answer
ARCHIVE_FILES_MAX = 100_000  # ours: files of an archive; each takes 1 to 2 KB of memory
DRS_CONTENTS_MAX = 100_000  # ours: files of a bundle that a DRS object lists
PENDING_RETRY_S = 5  # ours: Retry-After while a file is being verified or synced
