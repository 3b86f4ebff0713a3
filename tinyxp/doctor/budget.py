"""The time that a search may take."""

from __future__ import annotations

import time


class Budget:
    """Seconds that run from now on."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.ran_out = False

    def is_left(self) -> bool:
        """Whether there is time for one more try; once there is none, the clock is not read again."""
        self.ran_out = self.ran_out or time.monotonic() > self._deadline
        return not self.ran_out
