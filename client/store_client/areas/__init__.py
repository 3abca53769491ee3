"""Upload areas as a depositor uses them: selection, uploads, reports."""

JOBS = 8
"""Files uploaded at once."""
