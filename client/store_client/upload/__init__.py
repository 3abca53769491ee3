"""Bringing a directory of files into the store as a bundle.

walking kinds        what there is to bring
options reports      what is asked for, and what is answered
journal alone        how far it came, over all runs; one run at a time
sharing parts        memory, threads and the sign to stop; a large file in parts, read once
staging_*            where bytes wait until the store has taken them in
planning             what is there already
depositing bundling  file versions, and the bundle of them
running              all of it, in order
"""
