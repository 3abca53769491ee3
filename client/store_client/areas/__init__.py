"""Upload areas as a depositor uses them: selection, uploads, reports."""
