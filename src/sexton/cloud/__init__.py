"""Talking to AWS or anything AWS-shaped: signatures both ways, credentials, and the calls they pay for."""
