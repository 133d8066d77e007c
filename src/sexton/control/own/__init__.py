"""What Sexton serves beside the ECS API, at the same port: keys, events, exports."""
