"""The installed command against whole stores, whole and hurt."""
