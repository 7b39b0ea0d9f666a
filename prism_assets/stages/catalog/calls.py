"""Calls that change a catalog. The lease of the table fences each, and a note stands while a call may still take
effect.
"""

from __future__ import annotations

from sqlalchemy import Connection

from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases, publication_notes
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext


class NotedCalls:
    """Calls to the catalog by the holder of a table's lease, with a note before and after each.

    The lease is renewed right before each call, so nobody takes it over while the call begins. After a death or a lost
    answer the note remains, with the time until which the call may take effect. A death before or after a call leaves a
    note whose time is over.

    A process may stand still before its call for longer than this time. Other runs have then removed its note
    unprepared, so the process adds a new one after the call.
    """

    def __init__(self, context: StageContext, lease: Lease, note_id: int) -> None:
        self._context = context
        self._lease = lease
        self._note_id = note_id
        self._is_open = False
        self._was_lost = False

    def begin(self) -> None:
        """Raises LeaseLost if another run now has the table."""
        self._was_lost |= self._is_open
        self._is_open = False
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            self._note_call(connection)
        self._is_open = True
        failpoint("catalog.before_call")

    def answered(self) -> None:
        """Ends the note of the call, unless an earlier call was never answered."""
        failpoint("catalog.after_call")
        self._is_open = False
        if not self._was_lost:
            with self._context.database.begin() as connection:
                publication_notes.end_calls(connection, self._present_note(connection))

    def break_off(self) -> None:
        """Notes, when the run ends with an error, an unanswered call: it may take effect from now on."""
        if self._is_open or self._was_lost:
            with self._context.database.begin() as connection:
                self._note_call(connection)

    def _note_call(self, connection: Connection) -> None:
        note_id = self._present_note(connection)
        publication_notes.begin_call(connection, note_id, self._context.publisher.longest_call_seconds)

    def _present_note(self, connection: Connection) -> int:
        """Returns the note of this run, a new one if another run removed it."""
        if not publication_notes.lock_note(connection, self._note_id):
            self._note_id = publication_notes.add_note(
                connection, self._lease, self._context.worker, self._context.publisher.name
            )
        return self._note_id
