"""What requests to the authorization service hold, and what it answers, as schemas."""
