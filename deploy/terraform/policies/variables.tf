variable "lake_bucket" {
  description = "Bucket of the lake: PRISM_BUCKET."
  type        = string
}

variable "lake_prefix" {
  description = "Prefix of the lake, empty or ending with /: PRISM_PREFIX."
  type        = string
  default     = ""

  validation {
    condition     = var.lake_prefix == "" || endswith(var.lake_prefix, "/")
    error_message = "lake_prefix is empty or ends with a slash, as PRISM_PREFIX does."
  }
}

variable "staging_buckets" {
  description = "Buckets that services write log objects to."
  type        = list(string)
}

variable "queue_arns" {
  description = "Queues of PRISM_SQS_QUEUE_URLS."
  type        = list(string)
  default     = []
}

variable "glue_database_prefix" {
  description = "PRISM_GLUE_DATABASE_PREFIX: limits the roles to databases with these names."
  type        = string
  default     = ""
}

variable "partition" {
  description = "Partition of AWS: aws, aws-cn or aws-us-gov."
  type        = string
  default     = "aws"
}

variable "region" {
  description = "Region of the Glue catalog."
  type        = string
}

variable "account" {
  description = "Account of the Glue catalog."
  type        = string
}

variable "roles" {
  description = "Sections of docs/iam.md by role."
  type        = map(list(string))
  default = {
    # Code location, daemon, runs, commands by hand, and all processes of one machine.
    dagster = [
      "apply", "discover", "queues", "stream", "spool", "merge", "fold", "catalog", "iceberg", "repair", "rebuild",
      "erase", "doctor", "gc",
    ]
    # `prism worker`, and the job `prism table apply` of the chart.
    worker = ["apply", "discover", "queues", "stream", "spool", "catalog"]
    # Spark's executors, with any engine but `in-process`.
    spark = ["stream", "merge", "fold", "repair", "rebuild", "erase"]
    # Athena, Spark, DuckDB and other clients.
    reader = ["reader"]
  }

  validation {
    condition     = alltrue([for sections in values(var.roles) : alltrue([for section in sections : contains(keys(local.rights), section)])])
    error_message = "Each section of a role is a heading of docs/iam.md, such as stream."
  }
}
