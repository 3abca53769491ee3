"""The search engines behind `storage.protocols.SearchIndex`."""
