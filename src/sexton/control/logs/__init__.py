"""CloudWatch Logs, as far as tasks and those who read their output need it: the API, and the shelf that keeps it."""
