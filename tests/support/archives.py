"""Archives of tests, unpacked by any Python that the project is for."""
from __future__ import annotations

import tarfile
from pathlib import Path


def extract(archive: tarfile.TarFile, into: Path) -> None:
    """
    All of it, held against the filter for data where this Python knows one: 3.11 has it from
    3.11.4 on, and Debian 12 has 3.11.2.
    """
    if known := getattr(tarfile, "data_filter", None):
        archive.extraction_filter = known
    archive.extractall(into)
