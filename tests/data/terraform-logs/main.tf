# A log group as people keep it in Terraform; the variables are what changes between two applies.

terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}

variable "endpoint" { type = string }
variable "team" { type = string }
variable "retention" { type = number }

provider "aws" {
  region                      = "us-east-1"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  skip_requesting_account_id  = true
  endpoints { logs = var.endpoint }
  default_tags { tags = { owner = "tests" } }
}

resource "aws_cloudwatch_log_group" "web" {
  name              = "/tf/web"
  retention_in_days = var.retention
  tags              = { team = var.team }
}
