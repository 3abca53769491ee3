"""Queues and the clock: actors, claims, the dispatcher; decides alone what runs next."""
