variables {
  lake_bucket     = "our-lake"
  lake_prefix     = "lake/"
  staging_buckets = ["our-logs", "their-logs"]
  queue_arns      = ["arn:aws:sqs:eu-central-1:111122223333:prism-staging"]
  region          = "eu-central-1"
  account         = "111122223333"
}

run "no_role_writes_to_staging" {
  command = plan

  assert {
    condition = alltrue(flatten([
      for policy in values(output.policies) : [
        for statement in jsondecode(policy).Statement : length(setsubtract(statement.Action, ["s3:GetObject", "s3:ListBucket"])) == 0
        if anytrue([for resource in statement.Resource : strcontains(resource, "our-logs")])
      ]
    ]))
    error_message = "A role may write to a staging bucket, or delete from it."
  }
}

run "objects_are_named_below_the_prefix" {
  command = plan

  assert {
    condition = alltrue(flatten([
      for policy in values(output.policies) : [
        for statement in jsondecode(policy).Statement : [
          for resource in statement.Resource : startswith(resource, "arn:aws:s3:::our-lake/lake/")
          if startswith(resource, "arn:aws:s3:::our-lake/")
        ]
      ]
    ]))
    error_message = "A role may reach objects of the bucket outside of the lake's prefix."
  }
}

run "readers_only_read" {
  command = plan

  assert {
    condition = alltrue(flatten([
      for statement in jsondecode(output.policies["reader"]).Statement : [
        for action in statement.Action : strcontains(action, ":Get") || strcontains(action, ":List")
      ]
    ]))
    error_message = "Readers may change something."
  }
}

run "without_queues_there_is_no_right_on_queues" {
  command = plan

  variables {
    queue_arns = []
  }

  assert {
    condition     = !strcontains(output.policies["worker"], "sqs:")
    error_message = "The worker has rights on queues that nobody named."
  }
}

run "a_prefix_without_a_slash_is_refused" {
  command = plan

  variables {
    lake_prefix = "lake"
  }

  expect_failures = [var.lake_prefix]
}

run "a_section_that_does_not_exist_is_refused" {
  command = plan

  variables {
    roles = { worker = ["streams"] }
  }

  expect_failures = [var.roles]
}
