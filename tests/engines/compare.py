"""Compares dumps with golden files, byte for byte. Usage: compare.py DUMPS GOLDEN [WHY-SKIPPED]

Both are an engine's folder of cases. Prints a line for each case and, last, how many passed, failed
and were skipped. With WHY-SKIPPED there are no dumps, and every case is skipped.
"""

import filecmp
import pathlib
import sys


def files_below(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def complaint(dump, golden):
    """What is wrong with a case; nothing if all of it is as it was."""
    if not dump.is_dir():
        return "could not be dumped"
    if not golden.is_dir():
        return f"has no golden files: {dump} has what they would be"
    for name in sorted(files_below(dump) | files_below(golden)):
        if not (dump / name).is_file() or not (golden / name).is_file():
            return f"{name} is only in {'golden files' if (golden / name).is_file() else 'dumps'}"
        if not filecmp.cmp(dump / name, golden / name, shallow=False):
            return f"{name} differs"
    return None


def main():
    dumps, golden = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    why_skipped = sys.argv[3] if len(sys.argv) > 3 else None
    folders = [path for path in (dumps, golden) if path.is_dir()]
    names = sorted({case.name for folder in folders for case in folder.iterdir()})
    failed = 0
    for name in names:
        wrong = why_skipped or complaint(dumps / name, golden / name)
        verdict = "passed" if not wrong else f"{'SKIPPED' if why_skipped else 'FAILED'}: {wrong}"
        print(f"{golden.name}/{name}: {verdict}")
        failed += bool(wrong)
    if why_skipped:
        print(0, 0, len(names))
    else:
        print(len(names) - failed, failed, 0)


if __name__ == "__main__":
    main()
