"""What a deployment runs beside the store's own processes."""
