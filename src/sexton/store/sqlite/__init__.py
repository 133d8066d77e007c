"""The store of one machine: a SQLite file, one thread that writes it, and an image in memory that is read.

``store`` is what callers see and lives on the event loop; ``file`` is all that touches the disk and lives on
the writer thread; ``schema`` is the file's format. Nothing outside this package imports it: ``opening`` finds
it by the name in the URL.
"""
