"""The OpenID provider: codes, tokens, clients, keys."""
