"""What was lost: indices and catalogs made again, backups, epochs."""
