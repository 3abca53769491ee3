"""Calls with a token: users, groups, roles, what policies say, the audit log."""
