"""The commands of nouns and verbs."""
