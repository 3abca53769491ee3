"""Collections of links: written, patched and purged; where links lead."""
