"""Validation of folders, metadata documents and tables, before anything is sent."""
