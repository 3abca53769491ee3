"""Search: the query grammar, the evaluator, and the embedded and OpenSearch engines."""
