"""Both replicas alike: copies, comparisons, the scrub, and the report of them."""
