# Computes the policy of each role from the rights in rights.tf.json, which a test keeps equal to docs/iam.md. The module
# has no provider, so `terraform test` runs it without an account.

terraform {
  required_version = ">= 1.9"
}

locals {
  buckets = "arn:${var.partition}:s3:::"
  glue    = "arn:${var.partition}:glue:${var.region}:${var.account}:"
  lake    = "${local.buckets}${var.lake_bucket}"

  places = distinct(flatten([for section in values(local.rights) : keys(section)]))

  # A condition on s3:prefix would limit listings to the lake's prefix, but S3 knows no prefix when it decides whether a
  # missing object is reported as missing or as forbidden.
  resources = {
    for place in local.places : place => (
      place == "*" ? ["${local.glue}catalog", "${local.glue}database/${var.glue_database_prefix}*", "${local.glue}table/${var.glue_database_prefix}*/*"] :
      place == "QUEUES" ? var.queue_arns :
      place == "STAGING" ? [for bucket in var.staging_buckets : "${local.buckets}${bucket}"] :
      place == "STAGING/*" ? [for bucket in var.staging_buckets : "${local.buckets}${bucket}/*"] :
      place == "LAKE" ? [local.lake] :
      ["${local.lake}/${var.lake_prefix}${trimprefix(place, "LAKE/")}"]
    )
  }

  # role → place → actions, of all sections of the role. Places without a resource, such as queues that nobody named, are
  # left out.
  granted = {
    for role, sections in var.roles : role => {
      for place in local.places : place => sort(distinct(flatten([for section in sections : lookup(local.rights[section], place, [])])))
      if length(local.resources[place]) > 0 && anytrue([for section in sections : contains(keys(local.rights[section]), place)])
    }
  }

  # Places with the same actions share a statement.
  statements = {
    for role, places in local.granted : role => [
      for actions in distinct(values(places)) : {
        Effect   = "Allow"
        Action   = actions
        Resource = sort(flatten([for place, allowed in places : local.resources[place] if join(",", allowed) == join(",", actions)]))
      }
    ]
  }

  policies = { for role, statements in local.statements : role => jsonencode({ Version = "2012-10-17", Statement = statements }) }
}

output "policies" {
  description = "Policies by role, as JSON."
  value       = local.policies

  precondition {
    # The inline policies of a role may have 10,240 characters.
    condition     = alltrue([for policy in values(local.policies) : length(policy) <= 10240])
    error_message = "A policy is longer than IAM allows for a role: name fewer staging buckets, or divide the role."
  }
}
