"""Who we are to a store: tokens kept, refreshed, asked for."""
