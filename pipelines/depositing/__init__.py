"""Files and bundles: taken in, written, patched, read, checked out, buried and purged."""
