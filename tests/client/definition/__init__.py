"""What a store can be asked."""
