"""The error tree. Every error is transient or terminal by type, and its message says what to do.

PrismError
├── TransientError            the same call may succeed later: retry
│   ├── DatabaseUnavailable
│   ├── StoreUnavailable
│   ├── CatalogUnavailable
│   ├── QueueUnavailable
│   ├── KafkaUnavailable
│   ├── EngineUnavailable
│   ├── SecretsUnavailable    the manager of secrets did not answer
│   ├── WorkerUnavailable     the machine of a worker has no room, files or threads left
│   └── AlertNotSent          the message can be sent again
└── TerminalError             the same call fails again: somebody must act first
    ├── WrongUse              the caller's mistake: exit status 2
    │   ├── SettingsError
    │   └── DefinitionError
    ├── AccessDenied
    ├── ObjectArchived        it has to be restored before it can be read
    ├── UnsupportedContent    an object has to be written otherwise before it can be read
    ├── MissingBucket
    ├── ErasureMissing        the lake records an erasure that PostgreSQL lacks
    ├── WrongSchema           the tables of PostgreSQL are too new for this code
    │   └── OldSchema         `prism table apply` of this version comes first
    ├── WrongLake             the database belongs to another lake, or the lake to another database
    │   └── NoLake            no table was applied yet
    ├── MissingQueue
    ├── MissingTopic
    ├── MissingSecret
    ├── ExpressionsFailed     they take too long, or too much memory, over some lines
    ├── ObjectMissing
    ├── ObjectChanged
    ├── EngineFailed          the engine ran and a task died in it
    ├── LeaseLost             another worker owns the work now: nothing was changed
    │   └── StaleRewrite      others changed what a rewrite was planned from: it is planned again
    └── InvariantBroken       what is stored contradicts itself: nothing was changed
        └── KeyOccupied       other rows lie under a key that was to be written
"""


class PrismError(Exception):
    """The root of all errors that prism_assets raises on purpose."""


class TransientError(PrismError):
    """The same call may succeed later; retrying is safe."""


class DatabaseUnavailable(TransientError):
    """PostgreSQL refused, dropped or timed out a connection. Start it, or wait, and run the command again."""


class StoreUnavailable(TransientError):
    """The object store did not answer, or answered with a server error."""


class CatalogUnavailable(TransientError):
    """The data catalog did not answer, or throttled the call."""


class QueueUnavailable(TransientError):
    """The message queue did not answer, or throttled the call. Listings find the same objects meanwhile."""


class KafkaUnavailable(TransientError):
    """A cluster of Kafka did not answer. Its messages wait there."""


class EngineUnavailable(TransientError):
    """The Spark server cannot be reached."""


class SecretsUnavailable(TransientError):
    """The manager of secrets did not answer, so a setting has no value yet. Nothing was done."""


class WorkerUnavailable(TransientError):
    """The machine of the worker lacks what any work needs: room on its disk, open files, threads."""


class AlertNotSent(TransientError):
    """An alert did not reach its receiver. The message names no address, because a webhook's address is secret."""


class TerminalError(PrismError):
    """The same call fails again; the message says who must act."""


class WrongUse(TerminalError):
    """The command, the settings or a table file is wrong; nothing was done."""


class SettingsError(WrongUse):
    """One or more settings are missing or malformed; the message lists all of them."""


class DefinitionError(WrongUse):
    """One or more table files are wrong; the message lists file, line and field of each."""


class AccessDenied(TerminalError):
    """The credentials were refused. Check the access key and the policy of the role."""


class ObjectArchived(TerminalError):
    """An object is archived and must be restored before it can be read."""


class UnsupportedContent(TerminalError):
    """An object has an unsupported format, or its compression needs more memory than a worker has."""


class MissingBucket(TerminalError):
    """A bucket does not exist. Create it or correct its setting."""


class WrongSchema(TerminalError):
    """The tables of PostgreSQL are too new for this code. Nothing was done."""


class OldSchema(WrongSchema):
    """PostgreSQL has no tables yet, or those of an older version. Nothing was done."""


class WrongLake(TerminalError):
    """The database and the lake do not belong together; nothing was done. Correct the settings the message names."""


class NoLake(WrongLake):
    """No table was applied yet, so no lake belongs to the database. Run `prism table apply`."""


class MissingQueue(TerminalError):
    """A message queue does not exist. Create it, or correct PRISM_SQS_QUEUE_URLS."""


class MissingTopic(TerminalError):
    """A topic of Kafka does not exist, or is another one than before."""


class MissingSecret(TerminalError):
    """A worker lacks a secret for a table's expressions. Set the variable the message names."""


class ExpressionsFailed(TerminalError):
    """The expressions of a table failed as a whole over an object's lines. None of it was converted."""


class ObjectMissing(TerminalError):
    """The named object does not exist."""


class ObjectChanged(TerminalError):
    """The object under this key is another one than discovered."""


class ErasureMissing(TerminalError):
    """The lake records an erasure that PostgreSQL lacks. Nothing was done with the table."""


class EngineFailed(TerminalError):
    """The whole job died. The caller divides the work until a poisonous object is alone."""


class LeaseLost(TerminalError):
    """Another worker owns the work now; this attempt may be dropped."""


class StaleRewrite(LeaseLost):
    """Others changed what a rewrite was planned from; nothing of it was committed. Plan it again."""


class InvariantBroken(TerminalError):
    """Stored facts contradict each other; nothing was changed. The message names the partition and the facts."""


class KeyOccupied(InvariantBroken):
    """Other rows lie under a key to be written, as after a failover that reused ids. They were left alone."""


NOT_ITS_FAULT = (TransientError, AccessDenied, ObjectArchived, MissingBucket, MissingSecret)
"""Errors that may pass without a change of the object. An object with one of these is retried for long."""

WORTH_REPEATING = (TransientError, LeaseLost)
"""Errors after which a repeated call may succeed: the surroundings were down, or another worker was first."""
