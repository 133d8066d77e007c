"""What the caretaker can look at: one file each, unaware of its siblings, listed in ``care/look.py``."""
