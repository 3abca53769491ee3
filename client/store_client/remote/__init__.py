"""Read files of the store in place, by ranges.

content      the bytes of one file version, verified, and file objects
filesystem   the file system `store://` of fsspec, for pandas and others
"""
