"""The search engine on OpenSearch."""
