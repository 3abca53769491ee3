"""The embedded search engine on SQLite."""
