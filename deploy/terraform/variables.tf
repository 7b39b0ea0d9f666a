variable "name" {
  description = "Name of the installation; resources are named after it."
  type        = string
  default     = "prism"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,20}$", var.name))
    error_message = "name has 2 to 21 lower-case letters, digits and hyphens, and begins with a letter."
  }
}

variable "region" {
  description = "Region of buckets, queues, database and Glue."
  type        = string
}

variable "tags" {
  description = "Tags of all resources, beside Application and Installation."
  type        = map(string)
  default     = {}
}

# Buckets

variable "lake_bucket" {
  description = "Bucket of the lake, made here."
  type        = string
}

variable "lake_prefix" {
  description = "Prefix of the lake in the bucket, empty or ending with /."
  type        = string
  default     = ""
}

variable "noncurrent_days" {
  description = "Days for which versions of deleted objects stay. Erased rows live on in them for as long."
  type        = number
  default     = 3
}

variable "merged_to_intelligent_tiering_days" {
  description = "Days after which merged objects go to Intelligent-Tiering; null leaves them in Standard."
  type        = number
  default     = null
}

variable "staging_buckets" {
  description = <<-EOT
    Buckets that services write log objects to. `create` makes the bucket here; `expire_days` deletes objects after so
    many days, with `create`; `notify` sends events of new objects to the queue. A bucket has one notification
    configuration: set `notify` to false where another stack holds it, and add the topic there.
  EOT
  type = map(object({
    create      = optional(bool, false)
    expire_days = optional(number)
    notify      = optional(bool, true)
  }))

  validation {
    condition     = alltrue([for bucket in values(var.staging_buckets) : bucket.expire_days == null || bucket.create])
    error_message = "expire_days needs create: a lifecycle of somebody else's bucket is not changed."
  }
}

# Roles

variable "role_services" {
  description = "Services that may take the roles dagster and worker."
  type        = list(string)
  default     = ["pods.eks.amazonaws.com", "ecs-tasks.amazonaws.com", "ec2.amazonaws.com"]
}

variable "spark_services" {
  description = "Services that may take the role spark."
  type        = list(string)
  default     = ["pods.eks.amazonaws.com", "emr-serverless.amazonaws.com", "ec2.amazonaws.com"]
}

variable "eks" {
  description = "Cluster whose service accounts may take the roles by its provider of OIDC (IRSA); null with Pod Identity."
  type = object({
    oidc_provider_arn = string
    namespace         = optional(string, "prism")
    service_accounts  = optional(map(string), { dagster = "prism-dagster", worker = "lake-prism", spark = "lake-prism-spark" })
  })
  default = null
}

variable "reader_principals" {
  description = "ARNs of roles and users that may take the role reader."
  type        = list(string)
  default     = []
}

variable "glue_database_prefix" {
  description = "PRISM_GLUE_DATABASE_PREFIX."
  type        = string
  default     = ""
}

variable "compute_logs_bucket" {
  description = "Bucket of Dagster's compute logs, made here."
  type        = string
}

# Database

variable "vpc_id" {
  description = "VPC of the database."
  type        = string
}

variable "database_subnet_ids" {
  description = "Private subnets of the database, in two zones or more."
  type        = list(string)
}

variable "client_security_group_ids" {
  description = "Security groups of Dagster, workers and DuckLake's readers."
  type        = list(string)
}

variable "database_class" {
  description = "Class of the database; docs/sizing.md has the sizes."
  type        = string
  default     = "db.m7g.large"
}

variable "database_storage_gb" {
  description = "Storage at the beginning; docs/postgresql.md has the growth."
  type        = number
  default     = 100
}

variable "database_max_storage_gb" {
  description = "Limit of the storage that RDS adds by itself."
  type        = number
  default     = 1000
}

variable "database_multi_az" {
  description = "A standby in another zone."
  type        = bool
  default     = true
}

variable "database_user" {
  description = "User in PostgreSQL that signs in with an IAM token."
  type        = string
  default     = "prism"
}

variable "backup_days" {
  description = "Days of backups, for a restore to any second of them."
  type        = number
  default     = 14
}
