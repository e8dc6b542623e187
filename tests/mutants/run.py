#!/usr/bin/env python3
"""Plants each mistake of mutants.py in a copy of the tree, and counts the seeds that find it.

usage: tests/mutants/run.py [--seeds N] [NAME...]    N seeds at most for each (3000)
       tests/mutants/run.py --check                  only: is each place still there, once?

First the tree as it is runs N seeds, and has to pass. A mistake takes about a minute on two cores,
the first build longer; the copy and its build stay in build/mutants. The last line is "N passed,
M failed": passed is what a seed has found.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "mutants"
BUILD = TREE / "build" / "release"  # Where `./dev build` has its own, so that both share a ccache.


def run(*command, **options):
    return subprocess.run(command, text=True, capture_output=True, check=False, **options)


def missing(tree, changes):
    """The places of a mistake that the tree does not have exactly once, or nothing."""
    return ", ".join(f"{file} has {text.strip()!r} not once" for file, text, _ in changes
                     if (tree / file).read_text().count(text) != 1)


def check():
    bad = 0
    for name, _, *changes in MUTANTS:
        wrong = missing(ROOT, changes)
        if wrong:
            bad += 1
            print(f"{name}: {wrong}")
    print(f"{len(MUTANTS) - bad} passed, {bad} failed")
    return 1 if bad else 0


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
    """What went wrong, or nothing."""
    environment = os.environ | {"CCACHE_BASEDIR": str(TREE), "CCACHE_NOHASHDIR": "1"}
    if not (BUILD / "build.ninja").exists():
        made = run("cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                   "-DBUILD_TESTING=OFF", env=environment)
        if made.returncode != 0:
            return made.stdout + made.stderr
    made = run("ninja", "-C", BUILD, "weir", env=environment)
    return made.stdout[-2000:] if made.returncode != 0 else ""


def soak(seeds):
    """What is wrong with the tree's build, and how many seeds it took; or nothing."""
    # Orders that a shard refuses cost it its seat: without faults, nobody may ever lose one.
    for manner, count in (["--calm"], seeds // 20), ([], seeds):
        done = run(BUILD / "weir", "soak", "--seeds", str(count), "--broken-max", "1", *manner,
                   timeout=3600)
        found = re.findall(r"^BROKEN seed (\d+): (.*)$", done.stdout, re.MULTILINE)
        if found:
            seed, broken = min((int(seed), text) for seed, text in found)
            broken = re.sub(r" \(at .*", "", broken)
            return f"found by {'calm ' if manner else ''}seed {seed}: {broken}"
        if done.returncode != 0:
            return f"found by a crash, status {done.returncode}: {done.stderr[-500:].strip()}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3000)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.check:
        return check()
    copy_tree()
    wrong = build() or soak(arguments.seeds)
    if wrong:
        sys.exit(f"the tree as it is: {wrong}")
    passed = failed = 0
    for name, consequence, *changes in MUTANTS:
        if arguments.names and name not in arguments.names:
            continue
        copy_tree()
        outcome = missing(TREE, changes)
        if not outcome:
            for file, text, instead in changes:
                (TREE / file).write_text((TREE / file).read_text().replace(text, instead))
            trouble = build()
            outcome = f"does not build: {trouble}" if trouble else soak(arguments.seeds)
        outcome = outcome or f"NOT FOUND in {arguments.seeds} seeds ({consequence})"
        passed += outcome.startswith("found")
        failed += not outcome.startswith("found")
        print(f"{name}: {outcome}", flush=True)
    copy_tree()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
