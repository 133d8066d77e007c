"""Shapes that others defined: the ECS API, its limits and errors, and the two websocket protocols. No I/O, no clock."""
