"""The local stack: PostgreSQL, S3, Glue, SQS and Spark Connect on this machine, without containers.

`stack.LocalStack` starts, stops and describes it; `commands.build_app` is its command line. All servers
listen on loopback only, outlive the command that started them, and are recognised by process id, time of
creation and a marker on their command line before any signal is sent to them.
"""
