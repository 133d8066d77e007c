"""Typed readers of one Linux host. Each takes the root directory as an argument, so that a container with the host
mounted, a fixture tree and the host itself are read by the same code."""
