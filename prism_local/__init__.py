"""The local stack: PostgreSQL, S3, Glue, SQS and Spark Connect on this machine, without containers.

`stack.LocalStack` starts, stops and describes it; `commands.app` is its command line, which `prism` mounts as
`prism local`. All servers listen on loopback only, outlive the command that started them, and are recognised by process
id, time of creation and a marker on their command line before any signal is sent to them. `demo` plays logs on it. The
distribution is prism-local: nothing of this is installed with prism-assets alone.
"""
