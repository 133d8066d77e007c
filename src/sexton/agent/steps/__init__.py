"""The steps of a container's life, one file each.

A step is told what was known before, because this process may have died in the middle of the same step; it looks
before it acts where acting twice would matter, and says what happened as one event.
"""
