# What people keep in Terraform about ECS, all of it at once; the variables are what changes between two applies.

terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}

variable "endpoint" { type = string }
variable "image" { type = string }
variable "copies" { type = number }
variable "message" { type = string }
variable "team" { type = string }
variable "insights" { type = string }
variable "share" { type = number }

provider "aws" {
  region                      = "us-east-1"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  skip_requesting_account_id  = true
  endpoints {
    ecs = var.endpoint
    ec2 = var.endpoint
  }
  default_tags { tags = { owner = "tests" } }
}

resource "aws_ecs_account_setting_default" "insights" {
  name  = "containerInsights"
  value = var.insights
}

resource "aws_ecs_capacity_provider" "metal" {
  name = "metal"
  auto_scaling_group_provider {
    auto_scaling_group_arn         = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:11111111-2222-3333-4444-555555555555:autoScalingGroupName/metal"
    managed_termination_protection = "DISABLED"
    managed_scaling {
      status          = "ENABLED"
      target_capacity = 90
    }
  }
  tags = { team = var.team }
}

resource "aws_ecs_cluster" "blue" {
  name = "blue"
  setting {
    name  = "containerInsights"
    value = var.insights
  }
  configuration {
    execute_command_configuration { logging = "DEFAULT" }
  }
  tags = { team = var.team }
}

resource "aws_ecs_cluster_capacity_providers" "blue" {
  cluster_name       = aws_ecs_cluster.blue.name
  capacity_providers = ["FARGATE", "FARGATE_SPOT", aws_ecs_capacity_provider.metal.name]
  default_capacity_provider_strategy {
    capacity_provider = aws_ecs_capacity_provider.metal.name
    base              = 1
    weight            = 100
  }
}

data "aws_ecs_cluster" "default" {
  cluster_name = "default"
}

resource "aws_ecs_tag" "default" {
  resource_arn = data.aws_ecs_cluster.default.arn
  key          = "aside"
  value        = var.team
}

resource "aws_ecs_task_definition" "web" {
  family       = "tf-web"
  network_mode = "bridge"
  container_definitions = jsonencode([
    {
      name         = "main", image = var.image, memory = 32, cpu = 10, essential = true
      command      = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      environment  = [{ name = "MESSAGE", value = var.message }]
      portMappings = [{ containerPort = 80 }]
      mountPoints  = [{ sourceVolume = "data", containerPath = "/data", readOnly = true }]
      ulimits      = [{ name = "nofile", softLimit = 1024, hardLimit = 2048 }]
    },
  ])
  volume {
    name      = "data"
    host_path = "/tmp"
  }
  placement_constraints {
    type       = "memberOf"
    expression = "attribute:ecs.os-type == linux"
  }
  tags = { team = var.team }
}

resource "aws_ecs_task_definition" "serverless" {
  family                   = "tf-serverless"
  network_mode             = "awsvpc"
  requires_compatibilities = ["FARGATE"]
  cpu                      = "256"
  memory                   = "512"
  execution_role_arn       = "arn:aws:iam::123456789012:role/pull"
  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = "X86_64"
  }
  ephemeral_storage { size_in_gib = 30 }
  container_definitions = jsonencode([
    {
      name             = "main", image = var.image
      portMappings     = [{ name = "http", containerPort = 80, appProtocol = "http" }]
      healthCheck      = { command = ["CMD-SHELL", "true"] }
      logConfiguration = { logDriver = "awslogs", options = { awslogs-group = "g", awslogs-region = "us-east-1" } }
    },
  ])
}

resource "aws_ecs_service" "web" {
  name                               = "tf-web"
  cluster                            = "default"
  task_definition                    = aws_ecs_task_definition.web.arn
  desired_count                      = var.copies
  launch_type                        = "EC2"
  wait_for_steady_state              = true
  deployment_minimum_healthy_percent = 50
  deployment_maximum_percent         = 200
  enable_ecs_managed_tags            = true
  propagate_tags                     = "SERVICE"
  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }
  ordered_placement_strategy {
    type  = "spread"
    field = "instanceId"
  }
  placement_constraints {
    type       = "memberOf"
    expression = "attribute:ecs.os-type == linux"
  }
  tags = { team = var.team }
}

resource "aws_ecs_service" "each" {
  name                = "tf-each"
  cluster             = "default"
  task_definition     = aws_ecs_task_definition.web.arn
  scheduling_strategy = "DAEMON"
}

resource "aws_ecs_service" "serverless" {
  name            = "tf-serverless"
  cluster         = "default"
  task_definition = aws_ecs_task_definition.serverless.arn
  desired_count   = 0
  launch_type     = "FARGATE"
  network_configuration { subnets = [aws_subnet.tasks.id] }
}

resource "aws_ecs_service" "outside" {
  name          = "tf-outside"
  cluster       = "default"
  desired_count = 1
  deployment_controller { type = "EXTERNAL" }
}

resource "aws_ecs_task_set" "outside" {
  service         = aws_ecs_service.outside.id
  cluster         = "default"
  task_definition = aws_ecs_task_definition.web.arn
  launch_type     = "EC2"
  force_delete    = true
  scale {
    unit  = "PERCENT"
    value = var.share
  }
}

data "aws_ecs_task_definition" "web" {
  task_definition = aws_ecs_task_definition.web.family
  depends_on      = [aws_ecs_task_definition.web]
}

output "running" { value = aws_ecs_service.web.desired_count }
