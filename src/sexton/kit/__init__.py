"""Asyncio and file primitives that know no word of containers."""
