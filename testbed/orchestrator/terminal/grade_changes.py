"""Changes of a provisional verdict that are worth a line."""

from __future__ import annotations

GRADES = ("valid", "suspect", "invalid")
"""From the best to the worst."""
HOLD_S = 5.0
"""Seconds that a change has to last. A figure near its threshold crosses it with each second's sample; one script's
run went from invalid to suspect and back every second."""


class GradeChanges:
    """The grade that was said last, and whether another one has lasted.

    A verdict that alternates between two grades, both worse than what was said, has become worse by the milder of
    them. So the grade that is said is the nearest of those that came up while it lasted.
    """

    def __init__(self) -> None:
        self.said = GRADES[0]
        """The grade that holds for the terminal; runs begin valid."""
        self._since_s: float | None = None
        self._nearest = 0
        """Place in `GRADES`; it lies on one side of `said` since `_since_s`."""

    def change(self, grade: str | None, now_s: float) -> bool:
        """Take in the grade at `now_s`; return True if `said` has changed by it.

        Args:
            grade: One of `GRADES`; anything else, such as None before there is one, is left out.
        """
        if grade not in GRADES:
            return False
        said, found = GRADES.index(self.said), GRADES.index(grade)
        if found == said:
            self._since_s = None
        elif self._since_s is None or (found > said) != (self._nearest > said):
            self._since_s, self._nearest = now_s, found
        else:
            self._nearest = min(self._nearest, found, key=lambda place: abs(place - said))
        if self._since_s is None or now_s - self._since_s < HOLD_S:
            return False
        self.said, self._since_s = GRADES[self._nearest], None
        return True
