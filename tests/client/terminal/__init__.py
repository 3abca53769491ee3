"""Sessions in a pseudo-terminal, and the pictures of them in the documentation."""
