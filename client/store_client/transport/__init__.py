"""The one session to a store: time-outs, retries, redirects, pages, tokens."""
