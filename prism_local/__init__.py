"""The local stack: PostgreSQL, S3, Glue, SQS and Spark Connect on this machine, without containers.

`stack.LocalStack` starts, stops and describes the servers. `commands.app` is the command line, mounted as `prism
local`. All servers listen on loopback only and outlive the command that started them. Before a signal is sent to a
server, its process id, creation time and a marker on its command line are checked. `demo` plays logs on the stack. The
package prism-assets alone installs none of this; the distribution is prism-assets-local.
"""
