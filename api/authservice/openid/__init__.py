"""For applications: what they call, and what a person is asked on their behalf."""
