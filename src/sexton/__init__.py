"""Sexton: a per-host container agent, control plane and host caretaker, compatible with Amazon ECS."""

__version__ = "0.1.0"
