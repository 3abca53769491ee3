"""Subscriptions, deliveries and feeds: who is told what, when, and how it is signed."""
