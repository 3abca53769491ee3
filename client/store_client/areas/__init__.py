"""Upload areas: a depositor's folder at the store."""
