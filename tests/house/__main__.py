"""`python -m tests.house [--lower]`: ends with 1 when a rule of the house is broken."""
from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.house import prose, subjects

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 40


def main() -> int:
    """Check commits' subjects and the phrases of each folder; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--lower", action="store_true", help="write smaller counts")
    parser.add_argument("--list", metavar="FOLDER", help="print the findings of a folder or file")
    options = parser.parse_args()
    found = prose.all_findings(ROOT)
    if options.list:
        for finding in found:
            if finding.path.startswith(options.list):
                print(finding)
        return 0
    counts = Counter(prose.folder_of(finding.path) for finding in found)
    allowed = prose.allowed() if prose.COUNTS.exists() else None
    if options.lower:
        if allowed is not None:
            counts = Counter({folder: min(count, allowed.get(folder, 0))
                              for folder, count in counts.items()})
        prose.write(counts)
        return 0
    wrong = subjects.faults(ROOT)
    for folder, count in sorted(counts.items()):
        limit = (allowed or {}).get(folder, 0)
        if count > limit:
            wrong.append(f"{folder}: {count} phrases of tests/house/prose.py, {limit} are allowed:")
            of_folder = [str(f) for f in found if prose.folder_of(f.path) == folder]
            wrong += of_folder[:SHOWN]
    print("\n".join(wrong) if wrong else "house: clean")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
