"""Decisions as pure functions over immutable values: no I/O, no clock, no randomness."""
