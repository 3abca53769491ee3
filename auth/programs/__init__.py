"""Programs that sign for themselves."""
