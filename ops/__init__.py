"""The operator's commands and the supervisor."""
