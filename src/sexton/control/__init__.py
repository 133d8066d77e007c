"""The embedded control plane: the ECS API over durable records, real placement, and the agents' other end."""
