# Roles with the rights of docs/iam.md, and a role for each kind of process.

module "policies" {
  source = "./policies"

  lake_bucket          = var.lake_bucket
  lake_prefix          = var.lake_prefix
  staging_buckets      = keys(var.staging_buckets)
  queue_arns           = [aws_sqs_queue.staging.arn]
  glue_database_prefix = var.glue_database_prefix
  partition            = data.aws_partition.current.partition
  region               = var.region
  account              = data.aws_caller_identity.current.account_id
}

locals {
  trusted = { dagster = var.role_services, worker = var.role_services, spark = var.spark_services }

  # Who signs in to PostgreSQL. Executors of Spark never do.
  database_roles = ["dagster", "worker"]
}

data "aws_iam_policy_document" "trust" {
  for_each = local.trusted

  statement {
    actions = ["sts:AssumeRole", "sts:TagSession"]

    principals {
      type        = "Service"
      identifiers = each.value
    }
  }

  dynamic "statement" {
    for_each = var.eks == null ? [] : [var.eks]

    content {
      actions = ["sts:AssumeRoleWithWebIdentity"]

      principals {
        type        = "Federated"
        identifiers = [statement.value.oidc_provider_arn]
      }

      condition {
        test     = "StringEquals"
        variable = "${replace(statement.value.oidc_provider_arn, "/^.*:oidc-provider\\//", "")}:sub"
        values   = ["system:serviceaccount:${statement.value.namespace}:${statement.value.service_accounts[each.key]}"]
      }

      condition {
        test     = "StringEquals"
        variable = "${replace(statement.value.oidc_provider_arn, "/^.*:oidc-provider\\//", "")}:aud"
        values   = ["sts.amazonaws.com"]
      }
    }
  }
}

resource "aws_iam_role" "process" {
  for_each = local.trusted

  name               = "${var.name}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.trust[each.key].json
}

# For one machine of EC2.
resource "aws_iam_instance_profile" "dagster" {
  name = "${var.name}-dagster"
  role = aws_iam_role.process["dagster"].name
}

resource "aws_iam_role_policy" "process" {
  for_each = local.trusted

  name   = "prism"
  role   = aws_iam_role.process[each.key].name
  policy = module.policies.policies[each.key]
}

data "aws_iam_policy_document" "database" {
  statement {
    actions   = ["rds-db:connect"]
    resources = ["arn:${data.aws_partition.current.partition}:rds-db:${var.region}:${data.aws_caller_identity.current.account_id}:dbuser:${aws_db_instance.prism.resource_id}/${var.database_user}"]
  }
}

resource "aws_iam_role_policy" "database" {
  for_each = toset(local.database_roles)

  name   = "database"
  role   = aws_iam_role.process[each.key].name
  policy = data.aws_iam_policy_document.database.json
}

# Runs write their compute logs, the web server reads them.
data "aws_iam_policy_document" "compute_logs" {
  statement {
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
    resources = ["${aws_s3_bucket.compute_logs.arn}/*"]
  }

  statement {
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.compute_logs.arn]
  }
}

resource "aws_iam_role_policy" "compute_logs" {
  name   = "compute-logs"
  role   = aws_iam_role.process["dagster"].name
  policy = data.aws_iam_policy_document.compute_logs.json
}

data "aws_iam_policy_document" "reader_trust" {
  count = length(var.reader_principals) == 0 ? 0 : 1

  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "AWS"
      identifiers = var.reader_principals
    }
  }
}

resource "aws_iam_role" "reader" {
  count = length(data.aws_iam_policy_document.reader_trust)

  name               = "${var.name}-reader"
  assume_role_policy = data.aws_iam_policy_document.reader_trust[count.index].json
}

resource "aws_iam_role_policy" "reader" {
  count = length(aws_iam_role.reader)

  name   = "prism"
  role   = aws_iam_role.reader[count.index].name
  policy = module.policies.policies["reader"]
}
