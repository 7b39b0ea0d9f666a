# The bucket of the lake, made staging buckets, and the bucket of Dagster's compute logs.

locals {
  made_staging = { for name, bucket in var.staging_buckets : name => bucket if bucket.create }
  made_buckets = merge(
    { (var.lake_bucket) = aws_s3_bucket.lake.id },
    { for name, bucket in aws_s3_bucket.staging : name => bucket.id },
    { (var.compute_logs_bucket) = aws_s3_bucket.compute_logs.id },
  )
}

resource "aws_s3_bucket" "lake" {
  bucket = var.lake_bucket

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket" "staging" {
  for_each = local.made_staging

  bucket = each.key

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket" "compute_logs" {
  bucket = var.compute_logs_bucket
}

resource "aws_s3_bucket_public_access_block" "made" {
  for_each = local.made_buckets

  bucket                  = each.value
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "made" {
  for_each = local.made_buckets

  bucket = each.value

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "made" {
  for_each = local.made_buckets

  bucket = each.value

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

data "aws_iam_policy_document" "tls" {
  for_each = local.made_buckets

  statement {
    sid       = "OnlyTls"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = ["arn:${data.aws_partition.current.partition}:s3:::${each.key}", "arn:${data.aws_partition.current.partition}:s3:::${each.key}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "tls" {
  for_each = local.made_buckets

  bucket = each.value
  policy = data.aws_iam_policy_document.tls[each.key].json
}

# Versions bring back what somebody deleted by hand. Nothing in prism reads them.
resource "aws_s3_bucket_versioning" "lake" {
  bucket = aws_s3_bucket.lake.id

  versioning_configuration {
    status = "Enabled"
  }
}

# Current objects of the lake are deleted by `prism gc` alone. No rule here expires them.
resource "aws_s3_bucket_lifecycle_configuration" "lake" {
  bucket = aws_s3_bucket.lake.id

  rule {
    id     = "unfinished-uploads-and-old-versions"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  # Live objects are deleted within days of their merge. A colder class would charge them for thirty days.
  dynamic "rule" {
    for_each = var.merged_to_intelligent_tiering_days == null ? [] : [var.merged_to_intelligent_tiering_days]

    content {
      id     = "merged-to-intelligent-tiering"
      status = "Enabled"

      filter {
        tag {
          key   = "PrismObjectType"
          value = "merged"
        }
      }

      transition {
        days          = rule.value
        storage_class = "INTELLIGENT_TIERING"
      }
    }
  }

  depends_on = [aws_s3_bucket_versioning.lake]
}

resource "aws_s3_bucket_lifecycle_configuration" "staging" {
  for_each = local.made_staging

  bucket = aws_s3_bucket.staging[each.key].id

  rule {
    id     = "unfinished-uploads"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }

  dynamic "rule" {
    for_each = each.value.expire_days == null ? [] : [each.value.expire_days]

    content {
      id     = "expire"
      status = "Enabled"

      filter {}

      expiration {
        days = rule.value
      }
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "compute_logs" {
  bucket = aws_s3_bucket.compute_logs.id

  rule {
    id     = "expire"
    status = "Enabled"

    filter {}

    expiration {
      days = 30
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }
}
