"""Calls that change a catalog: each is fenced by the lease of its table, and noted as long as it may land."""

from __future__ import annotations

from sqlalchemy import Connection

from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases, publication_notes
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext


class NotedCalls:
    """Calls to the catalog by the holder of a table's lease, noted before and after.

    The lease is renewed right before each call, so that nobody takes it over while the call begins. A death or a lost
    answer leaves the note with the time until which the call may land; a death before or after it, with one long over.
    A process that stood still before its call for longer than that finds its note taken back, and notes the call anew
    when it has made it: nobody was prepared for it.
    """

    def __init__(self, context: StageContext, lease: Lease, note_id: int) -> None:
        self._context = context
        self._lease = lease
        self._note_id = note_id
        self._is_open = False
        self._was_lost = False

    def begin(self) -> None:
        """Raises LeaseLost if another run has the table now."""
        self._was_lost |= self._is_open
        self._is_open = False
        with self._context.database.begin() as connection:
            leases.hold(connection, self._lease)
            self._note_call(connection)
        self._is_open = True
        failpoint("catalog.before_call")

    def answered(self) -> None:
        """Nothing is on its way any more, unless an earlier call was never answered."""
        failpoint("catalog.after_call")
        self._is_open = False
        if not self._was_lost:
            with self._context.database.begin() as connection:
                publication_notes.end_calls(connection, self._present_note(connection))

    def break_off(self) -> None:
        """Called when the run ends with an error: a call that was never answered may land from now on."""
        if self._is_open or self._was_lost:
            with self._context.database.begin() as connection:
                self._note_call(connection)

    def _note_call(self, connection: Connection) -> None:
        note_id = self._present_note(connection)
        publication_notes.begin_call(connection, note_id, self._context.publisher.longest_call_seconds)

    def _present_note(self, connection: Connection) -> int:
        """The note of this run, made anew if another run took it back."""
        if not publication_notes.lock_note(connection, self._note_id):
            self._note_id = publication_notes.add_note(
                connection, self._lease, self._context.worker, self._context.publisher.name
            )
        return self._note_id
