"""What comes in and what goes out, a schema per direction; the API definition is made of them."""
