"""Blob stores: S3, Google Cloud Storage and folders, and depositors' sources."""
