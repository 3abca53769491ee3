"""Upload areas as a depositor sees them: which are known, what lies in them, and bringing files."""
