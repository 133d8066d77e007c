"""The operations of the API, one module per resource; each module's ``OPERATIONS`` names what it serves."""
