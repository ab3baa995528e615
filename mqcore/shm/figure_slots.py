"""The figures of a run, by the names of mqcore/figures.py."""
from __future__ import annotations

from mqcore.figures import FIGURES
from mqcore.participants import Participant, processes
from mqcore.shm.segment import Segment

BY_NAME = {figure.name: figure for figure in FIGURES}


class FigureSlots:
    """
    Reads figures from the slots of all processes, and sets those that Python counts.

    A name that is not in the table is a KeyError.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._processes = list(processes(segment.serving_count))

    def each(self, name: str) -> list[int]:
        """The figure of every process that counts it, in the order of their indices."""
        figure = BY_NAME[name]
        return [self._segment.figure(row.slot + index, figure.id)
                for row, index in self._processes if figure.role in (None, row)]

    def total(self, name: str) -> int:
        return sum(self.each(name))

    def put(self, name: str, value: int) -> None:
        """Set a figure of a role that has one process, in that process."""
        figure = BY_NAME[name]
        if figure.role is None or figure.role.count_max != 1:
            raise ValueError(f"{name}: several processes count it")
        self._segment.put_figure(figure.role.slot, figure.id, value)

    def begin(self, role: Participant) -> None:
        """The counts of a role that has one process begin at 0 with it; levels stay."""
        for figure in FIGURES:
            if figure.role is role and not figure.level:
                self.put(figure.name, 0)

    def shown(self) -> dict[str, dict[str, int]]:
        """What `mqcore status` shows: by section, then by key."""
        sections: dict[str, dict[str, int]] = {}
        for figure in FIGURES:
            if figure.shown:
                section, key = figure.shown.split(".")
                sections.setdefault(section, {})[key] = self.total(figure.name)
        return sections
