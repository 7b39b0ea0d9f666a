"""Calls that change a catalog. The lease of the table fences each, and a note stands while a call may still take
effect.
"""

from __future__ import annotations

from sqlalchemy import Connection

from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import publication_intents
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext


class FencedCalls:
    """Calls to the catalog by the holder of a table's lease, with a note before and after each.

    The lease is renewed right before each call, so nobody takes it over while the call begins. After a lost answer, or
    a death during the call, the note remains, with the time until which the call may take effect. A death between calls
    leaves a note whose time is over.

    A process may stand still before its call for longer than this time. Other runs may then have removed its note, so
    the process adds a new one after the call.
    """

    def __init__(self, context: StageContext, lease: Lease, intent_id: int) -> None:
        self._context = context
        self._lease = lease
        self._intent_id = intent_id
        self._is_open = False
        self._was_lost = False

    def begin(self) -> None:
        """Raises LeaseLost if another run now has the table."""
        self._was_lost |= self._is_open
        self._is_open = False
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            self._record_intent(connection)
        self._is_open = True
        failpoint("catalog.before_call")

    def answered(self) -> None:
        """Ends the intent of the call, unless an earlier call was never answered."""
        failpoint("catalog.after_call")
        self._is_open = False
        if not self._was_lost:
            with self._context.database.begin() as connection:
                publication_intents.end_calls(connection, self._current_intent(connection))

    def break_off(self) -> None:
        """Notes, when the run ends with an error, an unanswered call: it may take effect from now on."""
        if self._is_open or self._was_lost:
            with self._context.database.begin() as connection:
                self._record_intent(connection)

    def _record_intent(self, connection: Connection) -> None:
        intent_id = self._current_intent(connection)
        publication_intents.begin_call(connection, intent_id, self._context.publisher.longest_call_seconds)

    def _current_intent(self, connection: Connection) -> int:
        """Returns the intent of this run, a new one if another run removed it."""
        if not publication_intents.lock_intent(connection, self._intent_id):
            self._intent_id = publication_intents.add_intent(
                connection, self._lease, self._context.worker, self._context.publisher.name
            )
        return self._intent_id
