"""Code that the pages print for receivers of deliveries."""
