"""Authorization: accounts, policies, login, OAuth and tokens."""
