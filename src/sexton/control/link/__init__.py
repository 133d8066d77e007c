"""The control plane's end of the agents' two websockets."""
