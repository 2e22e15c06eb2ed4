"""The workers of a runner come and go: started, listened to, given up when silent or late, replaced, ended."""

import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait

from .protocol import Launcher, Message, Task
from .rows import Job
from .seat import Hand, Seat

LOADING = 1800.0  # seconds that a worker may take to start
MAX_FAILURES = 3  # starts that fail, or jobs that are lost, in a row, before a seat stays empty
RESTART = (0.5, 30.0)  # seconds before a lost worker is replaced: doubled with every start that failed, up to these


class Pool:
    """A seat for each instance of the launcher.

    silence   seconds without a sign of life after which a worker is replaced
    on_event  told (event, None, text) of everything worth a line
    on_lost   told (seat, hand, how, text) of each job that a lost worker had in hand
    """

    def __init__(
        self,
        launcher: Launcher,
        silence: float,
        on_event: Callable[[str, Job | None, str], None],
        on_lost: Callable[[Seat, Hand, str, str], None],
    ) -> None:
        self.launcher, self.silence = launcher, silence
        self.on_event, self.on_lost = on_event, on_lost
        now = time.monotonic()
        self.seats = [Seat(k, now + launcher.start_after(k)) for k in range(launcher.instances)]
        self.first_ready: float | None = None  # time.monotonic() at which the first worker could begin
        self.last_loss = ""

    @property
    def hands(self) -> list[Hand]:
        """What all workers hold."""
        return [hand for seat in self.seats for hand in seat.hands.values()]

    def others(self, seat: Seat) -> bool:
        """Whether there are more seats than this one that have not been given up."""
        return any(other is not seat and not other.retired for other in self.seats)

    def start_due(self) -> None:
        for seat in self.seats:
            if seat.process is None and not seat.retired and time.monotonic() >= seat.start_at:
                seat.process = self.launcher.launch(seat.index)
                seat.started = seat.heard = time.monotonic()

    def give(self, seat: Seat, job: Job, task: Task) -> None:
        seat.take(job, task.kind, "denoise" if task.kind == "make" and task.conditioning else "encode")
        self.tell(seat, task)

    def tell(self, seat: Seat, task: Task) -> None:
        try:
            if seat.process is not None:
                seat.process.send(task)
        except OSError:
            self.lose(seat, "killed")

    def cancel(self, job_id: str) -> None:
        for seat in self.seats:
            if job_id in seat.hands and seat.process is not None:
                seat.process.cancel(job_id)

    def hear(self) -> Iterator[tuple[Seat, Message]]:
        """What workers say of their jobs, within 0.2 s of waiting; what they say of themselves is settled here."""
        seats = {seat.process.connection: seat for seat in self.seats if seat.process is not None}
        if not seats:
            time.sleep(0.05)
            return
        for connection in wait(list(seats), timeout=0.2):
            seat = seats[connection]  # type: ignore[index]
            process = seat.process
            while process is not None and seat.process is process:
                try:
                    if not process.connection.poll():
                        break
                    message: Message = process.connection.recv()
                except (EOFError, OSError):
                    self.lose(seat, "killed")
                    break
                seat.heard = time.monotonic()
                if message.kind == "beat":
                    seat.memory = int(message.data.get("memory", 0))
                elif message.kind == "ready":
                    seat.ready = True
                    self.first_ready = self.first_ready or seat.heard
                elif message.kind == "broken":  # it cannot load the model
                    self.lose(seat, "killed", message.text)
                else:
                    yield seat, message

    def watch(self, limit: Callable[[Hand], float]) -> None:
        """Lose the workers that are silent or have a job for longer than its `limit` in seconds; replace worn ones."""
        now = time.monotonic()
        for seat in self.seats:
            if seat.process is None:
                continue
            quiet = now - seat.heard
            late = next((hand for hand in seat.hands.values() if now - hand.since > limit(hand)), None)
            if quiet > (self.silence if seat.ready else max(LOADING, self.silence)):
                self.lose(seat, "silent", f"its worker gave no sign of life for {quiet:.0f} s")
            elif late is not None:
                self.lose(seat, "time", f"it was not done within its {limit(late):.0f} s")
            elif seat.worn and not seat.hands:
                self._replace(seat, seat.worn)

    def lose(self, seat: Seat, how: str, text: str | None = None) -> None:
        """The worker is gone, or is made to be: its jobs go on elsewhere, and a new process sits down in its place."""
        process = seat.process
        if process is None:
            return
        process.kill()
        code = process.exitcode
        text = text or (
            f"its worker was killed by signal {-code}" if code and code < 0 else f"its worker ended ({code})"
        )
        self.last_loss = text
        seat.lost(list(seat.hands))
        for hand in list(seat.hands.values()):
            self.on_lost(seat, hand, how, text)
        self.on_event("worker lost", None, f"instance {seat.index}: {text}")
        first, longest = RESTART
        seat.reset(time.monotonic() + min(longest, first * 2.0**seat.failures))
        # A job may kill every worker it meets, and is set aside for it; a seat where three jobs in a row were lost is
        # itself the trouble, if others are better off.
        if seat.failures >= MAX_FAILURES or (self.others(seat) and len(seat.lost_jobs) >= MAX_FAILURES):
            seat.retired = True
            self.on_event("instance given up", None, f"instance {seat.index}: {text}, {MAX_FAILURES} times in a row")

    def _replace(self, seat: Seat, why: str) -> None:
        """A worker that has nothing in hand is ended and started anew."""
        if seat.process is not None:
            seat.process.kill()
        seat.restarts.append(why)
        self.on_event("worker replaced", None, f"instance {seat.index}: {why}")
        seat.reset(time.monotonic())

    def close(self, why: str) -> None:
        """End every worker: one without a job may end by itself, the others' jobs are lost as "stopped"."""
        taken = [(seat, seat.process) for seat in self.seats if seat.process is not None]
        for seat, process in taken:
            if not seat.hands:
                try:
                    process.send(Task("stop"))
                    process.connection.poll(2.0)
                except (OSError, EOFError):
                    pass
            process.kill()
        for seat, _ in taken:
            for hand in list(seat.hands.values()):
                self.on_lost(seat, hand, "stopped", why)
            seat.reset(0.0)
