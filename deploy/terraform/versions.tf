terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = merge({ Application = "prism-assets", Installation = var.name }, var.tags)
  }
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}
