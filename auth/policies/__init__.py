"""Access policies: grammar, conditions and evaluation."""
