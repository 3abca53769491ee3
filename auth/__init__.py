"""Who asks and what they may: tokens, keys, groups."""
