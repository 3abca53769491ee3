"""Pages for people: logging in and out, and what somebody sees of their own login."""
