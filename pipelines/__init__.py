"""What the service means: plain functions on frozen dataclasses; no HTTP, no queue, no vendor."""
