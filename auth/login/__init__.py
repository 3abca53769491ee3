"""Who is at the browser: local passwords and upstream providers."""
