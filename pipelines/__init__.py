"""Business logic: plain functions on frozen dataclasses; no HTTP, no queue, no vendor code."""
