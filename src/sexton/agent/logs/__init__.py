"""What tasks write with the driver awslogs: taken by a relay on this host, kept on its disk, delivered by the agent."""
