"""Marshmallow schemas of requests and responses; the OpenAPI definition uses them."""
