"""The query grammar: parse a request's JSON into clauses."""
