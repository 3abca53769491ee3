"""Downloads: byte-identical, or a clear failure, whatever the bucket does."""
