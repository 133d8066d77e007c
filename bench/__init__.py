"""What Sexton costs, measured beside the floor in the same run; each module runs alone with ``python -m``."""
