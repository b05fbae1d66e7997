"""The archive: what is past retention, as compressed CSV, one file a partition and a manifest beside it.

A partition is detached, written, read back and compared, recorded in pgtick.archives, and only then dropped. Each step
can be interrupted and is taken up again, by this or another process: until a partition is recorded as written its file
counts for nothing, and until it is dropped its rows are in the database.
"""
