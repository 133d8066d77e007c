"""The audit of an image: open ``auditing.py`` first; what is known of units and hosts is data, in ``data/``."""
