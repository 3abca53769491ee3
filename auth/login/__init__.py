"""Login: passwords, identity providers, sessions and lockout."""
