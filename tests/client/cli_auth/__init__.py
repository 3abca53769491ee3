"""The commands about who we are, as they are typed."""
