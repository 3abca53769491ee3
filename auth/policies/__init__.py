"""Access policies: documents, their grammar, and what they decide. Pure."""
