"""The image is built, and every process of the Procfile runs from it in containers."""
