#!/usr/bin/env python3
"""Plants each mistake of mutants.py in a copy of the tree, and counts the seeds that find it.

usage: tests/mutants/run.py [--seeds N] [NAME...]    N seeds at most for each (400)

Takes about a minute for each mistake on two cores; the first build takes longer. The copy and its
build stay in build/mutants. The last line is "N passed, M failed": passed is what a seed has found.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
BUILD = WORK / "build"


def run(*command, **options):
    return subprocess.run(command, text=True, capture_output=True, check=False, **options)


def copy_tree():
    """Only what has changed is copied, so that only that is built again."""
    for name in run("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard").stdout.split("\n"):
        source, target = ROOT / name, TREE / name
        if not name or not source.is_file():
            continue
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def build():
    if not (BUILD / "build.ninja").exists():
        made = run("cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                   "-DBUILD_TESTING=OFF")
        if made.returncode != 0:
            sys.exit(made.stdout + made.stderr)
    return run("ninja", "-C", BUILD, "weir")


def seeds_until_found(seeds):
    """How many seeds it took, or None; and what was broken."""
    done = run(BUILD / "weir", "soak", "--seeds", str(seeds), "--broken-max", "1", timeout=3600)
    found = re.findall(r"^BROKEN seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    if found:
        return min((int(seed), text) for seed, text in found)
    if done.returncode not in (0, 1):
        return 1, f"the program ended with status {done.returncode}"
    return None, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    passed = failed = 0
    for name, file, text, instead, wrong in MUTANTS:
        if arguments.names and name not in arguments.names:
            continue
        copy_tree()
        source = (TREE / file).read_text()
        if source.count(text) != 1:
            print(f"{name}: FAILED, {file} does not have that text once", flush=True)
            failed += 1
            continue
        (TREE / file).write_text(source.replace(text, instead))
        made = build()
        if made.returncode != 0:
            print(f"{name}: FAILED, does not build\n{made.stdout[-2000:]}", flush=True)
            failed += 1
            continue
        seed, broken = seeds_until_found(arguments.seeds)
        if seed is None:
            failed += 1
            print(f"{name}: NOT FOUND in {arguments.seeds} seeds ({wrong})", flush=True)
        else:
            passed += 1
            broken = re.sub(r" \(at .*", "", broken)
            print(f"{name}: found by seed {seed}: {broken}", flush=True)
    copy_tree()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
