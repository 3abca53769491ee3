"""Read files of the store in place, by ranges.

locations    addresses as `store://bundle/UUID.VERSION/reads/lane1.fastq.gz`
content      the bytes of one file version, verified
files        file objects
filesystem   the file system `store://` of fsspec, for pandas and others
"""
