# Events of new staging objects: bucket → topic → queue. The topic lets other consumers subscribe beside prism.

locals {
  notified = [for name, bucket in var.staging_buckets : name if bucket.notify]
}

resource "aws_sns_topic" "staging" {
  name = "${var.name}-staging"
}

# Messages are deleted after the commit of their objects. The timeout is longer than a tick of discovery.
resource "aws_sqs_queue" "staging" {
  name                       = "${var.name}-staging"
  visibility_timeout_seconds = 60
  message_retention_seconds  = 1209600
  receive_wait_time_seconds  = 0
  sqs_managed_sse_enabled    = true
}

data "aws_iam_policy_document" "topic" {
  statement {
    actions   = ["sns:Publish"]
    resources = [aws_sns_topic.staging.arn]

    principals {
      type        = "Service"
      identifiers = ["s3.amazonaws.com"]
    }

    condition {
      test     = "ArnLike"
      variable = "aws:SourceArn"
      values   = [for name in keys(var.staging_buckets) : "arn:${data.aws_partition.current.partition}:s3:::${name}"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.current.account_id]
    }
  }
}

resource "aws_sns_topic_policy" "staging" {
  arn    = aws_sns_topic.staging.arn
  policy = data.aws_iam_policy_document.topic.json
}

data "aws_iam_policy_document" "queue" {
  statement {
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.staging.arn]

    principals {
      type        = "Service"
      identifiers = ["sns.amazonaws.com"]
    }

    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [aws_sns_topic.staging.arn]
    }
  }
}

resource "aws_sqs_queue_policy" "staging" {
  queue_url = aws_sqs_queue.staging.id
  policy    = data.aws_iam_policy_document.queue.json
}

resource "aws_sns_topic_subscription" "staging" {
  topic_arn            = aws_sns_topic.staging.arn
  protocol             = "sqs"
  endpoint             = aws_sqs_queue.staging.arn
  raw_message_delivery = true
}

resource "aws_s3_bucket_notification" "staging" {
  for_each = toset(local.notified)

  bucket = each.key

  topic {
    topic_arn = aws_sns_topic.staging.arn
    events    = ["s3:ObjectCreated:*"]
  }

  # S3 tries the topic when the notification is set.
  depends_on = [aws_sns_topic_policy.staging, aws_s3_bucket.staging]
}
