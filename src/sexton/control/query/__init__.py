"""What the control plane answers of neighbouring services that speak in forms and XML: EC2, STS."""
