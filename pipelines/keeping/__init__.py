"""Bytes: checksums, copies between buckets, records, and what becomes of a blob."""
