"""HTTP machinery that both applications share."""
