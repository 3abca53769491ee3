"""Recovery: backup, restore, epochs, rebuild and reconcile of the catalog."""
