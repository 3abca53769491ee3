"""Documents: assembled from a bundle's metadata, given a shape, put where search finds them."""
