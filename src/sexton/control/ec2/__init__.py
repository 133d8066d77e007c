"""EC2's networks: VPCs and subnets as pools of addresses, security groups, interfaces."""
