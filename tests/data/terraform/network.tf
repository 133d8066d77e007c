# Networks of tasks, as people write them for EC2, and a service that uses them.

variable "port" { type = number }
variable "vpc_copies" { type = number }

resource "aws_vpc" "tasks" {
  cidr_block                       = "10.40.0.0/16"
  enable_dns_hostnames             = true
  assign_generated_ipv6_cidr_block = true
  tags                             = { Name = "tasks", team = var.team }
}

resource "aws_subnet" "tasks" {
  vpc_id                          = aws_vpc.tasks.id
  cidr_block                      = cidrsubnet(aws_vpc.tasks.cidr_block, 8, 1)
  ipv6_cidr_block                 = cidrsubnet(aws_vpc.tasks.ipv6_cidr_block, 8, 1)
  assign_ipv6_address_on_creation = true
  availability_zone               = "us-east-1a"
  tags                            = { team = var.team }
}

resource "aws_security_group" "web" {
  name        = "web"
  description = "what serves the web"
  vpc_id      = aws_vpc.tasks.id
  tags        = { team = var.team }
}

# Rules inside the group, as older configurations have them.
resource "aws_security_group" "client" {
  name   = "client"
  vpc_id = aws_vpc.tasks.id
  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_vpc_security_group_ingress_rule" "web" {
  security_group_id            = aws_security_group.web.id
  referenced_security_group_id = aws_security_group.client.id
  ip_protocol                  = "tcp"
  from_port                    = var.port
  to_port                      = var.port
  description                  = "clients"
  tags                         = { team = var.team }
}

resource "aws_vpc_security_group_ingress_rule" "ping" {
  security_group_id = aws_security_group.web.id
  cidr_ipv6         = "::/0"
  ip_protocol       = "icmpv6"
  from_port         = -1
  to_port           = -1
}

resource "aws_vpc_security_group_egress_rule" "web" {
  security_group_id = aws_security_group.web.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_ecs_task_definition" "vpc" {
  family       = "tf-vpc"
  network_mode = "awsvpc"
  container_definitions = jsonencode([
    {
      name         = "main", image = var.image, memory = 32, cpu = 10, essential = true
      command      = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      portMappings = [{ containerPort = 80 }]
    },
  ])
}

resource "aws_ecs_service" "vpc" {
  name                  = "tf-vpc"
  cluster               = "default"
  task_definition       = aws_ecs_task_definition.vpc.arn
  desired_count         = var.vpc_copies
  launch_type           = "EC2"
  wait_for_steady_state = true
  network_configuration {
    subnets         = [aws_subnet.tasks.id]
    security_groups = [aws_security_group.web.id]
  }
}
