"""The house rules that a program can check: prints FILE:LINE: what to do instead.

A ban stands for a promise: without clocks, threads and entropy of their own, the actors run the
same under a seed; with includes that point downwards only, a layer can be read and replaced alone.
"""

import re
import subprocess
import sys
from pathlib import Path

LAYERS = ["schemas", "runtime", "transports", "actors", "adapters"]  # each sees those before it
ABOVE_LAYERS = ["tests", "bench", "examples"]
TOP_LEVEL = set(LAYERS + ABOVE_LAYERS) | {
    "CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "LICENSE",
    "README.md", "dev"}
HEADER_LINES_MAX, SOURCE_LINES_MAX, README_LINES_MAX = 300, 500, 60
FUNCTION_LINES_MAX, COLUMNS_MAX = 70, 100

# The places that hand time, randomness and threads to all others.
INJECTORS = r"(tests/)?(runtime/(clock|random|workers)[._]|transports/)|bench/"
# pattern, where it is allowed, what to do instead
BANS = [
    (r"\b\w*_clock::now\b|\b(clock_gettime|gettimeofday)\s*\(", INJECTORS,
     "reads a system clock: take a clock as a constructor argument"),
    (r"\brandom_device\b|\bgetrandom\s*\(|\bgetentropy\s*\(", INJECTORS,
     "draws entropy: take a seed as a constructor argument"),
    (r"\bstd::(thread|jthread|async)\b(?!::)|\bpthread_create\b", INJECTORS,
     "starts a thread: use Workers (runtime/workers.hpp)"),
    (r"\bsleep_(for|until)\b|\b(u|nano)?sleep\s*\(", None,
     "sleeps: wait for an event with a deadline"),
    (r"\bstd::uniform_\w+_distribution\b", None,
     "differs between standard libraries: derive the value from the engine's own numbers"),
    (r"\[=[],]", None, "captures everything by value: name what is captured"),
]
# pattern, where it is allowed
INCLUDE_BANS = [
    (r"<caf/", r"(tests/)?actors/", "only actors/ includes CAF"),
    (r"<(capnp|kj)/", r"(tests/)?(runtime|schemas)/", "only runtime/ and schemas/ see Cap'n Proto"),
    (r"<(infiniband|rdma)/", r"(tests/)?transports/rdma/", "only transports/rdma/ sees verbs"),
    (r"<(cuda\w*|nccl)\.h", r"(tests/)?transports/(cuda|nccl)/",
     "only transports/cuda/ and transports/nccl/ see CUDA"),
    (r"<(boost/asio|asio)", r"(tests/)?(transports/tcp|adapters/web)/",
     "only transports/tcp/ and adapters/web/ see Asio"),
]


def without_comments_and_strings(text):
    """The same text with their characters blanked, so that lines and columns stay."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def find_bans(path, text):
    code = without_comments_and_strings(text)
    for pattern, allowed, remedy in BANS:
        if allowed and re.match(allowed, path):
            continue
        for match in re.finditer(pattern, code):
            yield line_of(code, match.start()), f"{match.group().strip(' (')} {remedy}"


def find_includes(path, text, paths):
    layer = path.split("/")[0]
    own = path.removesuffix(".cpp") + ".hpp"
    first = True
    for match in re.finditer(r'^\s*#\s*include\s*(<[^>]*>|"[^"]*")', text, re.MULTILINE):
        name, line = match.group(1), line_of(text, match.start(1))
        for pattern, allowed, rule in INCLUDE_BANS:
            if re.match(pattern, name) and not re.match(allowed, path):
                yield line, f"includes {name}: {rule}"
        if name.startswith('"'):
            target = name.strip('"').split("/")[0]
            if target not in LAYERS + ABOVE_LAYERS:
                yield line, f"includes {name}: give the path from the root, or third parties in <>"
            elif layer in LAYERS and target not in LAYERS[:LAYERS.index(layer) + 1]:
                yield line, f"includes {name} from {layer}/: includes point downwards only"
        if first and path.endswith(".cpp") and own in paths and name != f'"{own}"':
            yield line, f'includes {name} before its own header "{own}"'
        first = False


def find_long_functions(text):
    """Blocks that follow a parameter list, outermost only; namespaces and types are looked into."""
    code = without_comments_and_strings(text)
    stack = []  # for each open brace: the line its function begins at, or None
    begin = 0
    for match in re.finditer(r"[;{}]", code):
        introduction = code[begin:match.start()]
        if match.group() == "{":
            inside = any(start is not None for start in stack)
            is_scope = re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$",
                                 introduction)
            start = begin + len(introduction) - len(introduction.lstrip())
            is_function = not inside and not is_scope and ")" in introduction
            stack.append(line_of(code, start) if is_function else None)
        elif match.group() == "}" and stack:
            start = stack.pop()
            lines = line_of(code, match.start()) - start + 1 if start else 0
            if lines > FUNCTION_LINES_MAX:
                yield start, f"a function of {lines} lines: split it, {FUNCTION_LINES_MAX} at most"
        begin = match.end()


def find_shape(path, text):
    lines = text.split("\n")
    lines_max = HEADER_LINES_MAX if path.endswith(".hpp") else SOURCE_LINES_MAX
    if len(lines) - 1 > lines_max:
        yield lines_max + 1, f"{len(lines) - 1} lines: split it on a noun, {lines_max} at most"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            yield number, f"{len(line)} columns: {COLUMNS_MAX} at most"
    if path.endswith(".hpp"):
        if lines[0] != "#pragma once":
            yield 1, "a header begins with #pragma once"
        elif len(lines) < 2 or not lines[1].startswith("//"):
            yield 2, "after #pragma once comes one sentence that says why the file exists"
    if path.endswith("_test.cpp"):
        comment, case = text.find("//"), text.find("TEST_CASE")
        if case >= 0 and not 0 <= comment < case:
            yield 1, "a test file's first comment says its goal and method, before the first test"


def find_names(paths):
    for path in paths:
        parts = path.split("/")
        if parts[0] not in TOP_LEVEL and not parts[0].startswith("."):
            yield path, 1, f"{parts[0]} does not belong at the top: put it into a layer's folder"
        for part in parts:
            if re.fullmatch(r"(\w+_)?(utils?|commons?|helpers?)(_test)?(\.\w+)?", part):
                yield path, 1, f"{part} names no thing: call it after what it holds"


def find_missing_readmes(paths):
    folders = {}
    for path in sorted(paths):
        parts = path.split("/")[:-1]
        if parts and parts[0] in LAYERS and "internal" not in parts:
            for depth in range(1, len(parts) + 1):
                folders.setdefault("/".join(parts[:depth]), path)
        elif parts and parts[0] in ABOVE_LAYERS:
            folders.setdefault(parts[0], path)
    for folder in folders:
        if f"{folder}/README.md" not in paths:
            yield f"{folder}/README.md", 1, "is missing: say what the folder is for, in a page"


def check(files):
    """Findings (path, line, text) of a tree given as a dict from path to text."""
    yield from find_names(files)
    yield from find_missing_readmes(files)
    for path, text in sorted(files.items()):
        found = []
        if path.endswith((".hpp", ".cpp")):
            found += find_bans(path, text)
            found += find_includes(path, text, files)
            found += find_long_functions(text)
            found += find_shape(path, text)
        elif path.endswith((".py", ".cmake", ".sh")):
            found += find_shape(path, text)
        elif path.endswith("README.md") and "/" in path:
            if text.count("\n") > README_LINES_MAX:
                found.append((README_LINES_MAX + 1, f"{README_LINES_MAX} lines are a page"))
        yield from ((path, line, message) for line, message in sorted(found))


def tree(root):
    """The tree's files as text, committed or not, less what git ignores."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "--cached", "--others",
         "--exclude-standard", "-z"],
        check=True, capture_output=True, text=True).stdout
    files = {}
    for path in listing.split("\0"):
        if path and (root / path).is_file():
            files[path] = (root / path).read_bytes().decode("utf-8", errors="ignore")
    return files


def main():
    files = tree(Path(__file__).resolve().parents[2])
    findings = list(check(files))
    for path, line, message in findings:
        print(f"{path}:{line}: {message}")
    print(f"house rules: {len(findings)} broken in {len(files)} files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
