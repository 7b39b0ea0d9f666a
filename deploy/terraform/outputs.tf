output "environment" {
  description = "Settings of prism for this installation, without the database's URL."
  value = {
    AWS_REGION                 = var.region
    PRISM_BUCKET               = aws_s3_bucket.lake.bucket
    PRISM_PREFIX               = var.lake_prefix
    PRISM_GLUE_DATABASE_PREFIX = var.glue_database_prefix
    PRISM_SQS_QUEUE_URLS       = aws_sqs_queue.staging.url
    PRISM_COMPUTE_LOGS_BUCKET  = aws_s3_bucket.compute_logs.bucket
    PRISM_DAGSTER_PG_HOST      = aws_db_instance.prism.address
    PRISM_DAGSTER_PG_PORT      = tostring(aws_db_instance.prism.port)
  }
}

output "database_host" {
  description = "Host of PostgreSQL."
  value       = aws_db_instance.prism.address
}

output "database_secret" {
  description = "ARN of the secret with the administrator's password."
  value       = aws_db_instance.prism.master_user_secret[0].secret_arn
}

output "roles" {
  description = "ARNs of roles by process."
  value       = merge({ for name, role in aws_iam_role.process : name => role.arn }, { for role in aws_iam_role.reader : "reader" => role.arn })
}

output "instance_profile" {
  description = "Profile of a machine with the role dagster."
  value       = aws_iam_instance_profile.dagster.name
}

output "topic" {
  description = "Topic for events of staging buckets of other stacks."
  value       = aws_sns_topic.staging.arn
}
