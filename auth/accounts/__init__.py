"""Users, groups and roles: what each call of the authorization service does."""
