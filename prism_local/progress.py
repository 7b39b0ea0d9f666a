"""Shows progress while servers start and stop."""

from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_LAST_WORDS = ("ready", "runs already", "stopped")


class Display:
    """One moving line per service on a terminal, one plain line per event elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> "Display":
        if self._progress:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.stop()

    def show(self, service: str, message: str) -> None:
        """Shows a service's current step. Thread-safe."""
        if self._progress is None:
            self._console.print(f"{service}: {message}", highlight=False, markup=False, soft_wrap=True)
            return
        task = self._tasks.get(service)
        if task is None:
            task = self._tasks[service] = self._progress.add_task(service, total=1)
        done = message.startswith(_LAST_WORDS)
        self._progress.update(task, description=f"{service:<9} {message}", completed=1 if done else 0)
