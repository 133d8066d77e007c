"""What the caretaker can do about a finding: one file each, unaware of its siblings, listed in ``care/acting.py``."""
