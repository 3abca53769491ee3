"""Pages and operations to log in, log out and manage one's own login."""
