"""The house rules find what they are for. Goal: no rule is asleep, and none bites what is allowed.

Method: each test plants one fault in a tree that is otherwise in order, and expects that finding
at that line and no other; its counterpart is the nearest thing that is allowed.
"""

import unittest

import tidy

CLEAN = {
    "README.md": "# Weir\n",
    "CMakeLists.txt": "",
    ".clang-format": "",
    "runtime/README.md": "# runtime\n",
    "runtime/box.hpp": "#pragma once\n// Boxes.\n",
    "runtime/box.cpp": '#include "runtime/box.hpp"\n\n#include <vector>\n',
    "transports/README.md": "# transports\n",
    "actors/README.md": "# actors\n",
    "adapters/README.md": "# adapters\n",
    "tests/README.md": "# tests\n",
    "tests/runtime/box_test.cpp": "// Goal: boxes. Method: by hand.\nTEST_CASE() {}\n",
    "bench/README.md": "# bench\n",
}


def findings(**planted):
    return list(tidy.check(CLEAN | planted.get("files", {})))


class TidyTest(unittest.TestCase):
    def assert_found(self, path, text, line, words):
        found = findings(files={path: text})
        self.assertEqual([(path, line)], [(where, number) for where, number, _ in found], found)
        self.assertIn(words, found[0][2])

    def assert_allowed(self, path, text):
        self.assertEqual([], findings(files={path: text}))

    def test_a_tree_in_order_is_clean(self):
        self.assertEqual([], findings())

    def test_clocks_entropy_threads_and_sleep_are_banned_outside_the_injectors(self):
        for call, remedy in [
                ("std::chrono::steady_clock::now();", "take a clock"),
                ("clock_gettime(CLOCK_MONOTONIC, &t);", "take a clock"),
                ("std::random_device seed;", "take a seed"),
                ("std::thread worker;", "use Workers"),
                ("std::jthread worker;", "use Workers"),
                ("std::async(f);", "use Workers")]:
            with self.subTest(call):
                text = f"// Why.\nvoid f() {{ {call} }}\n"
                self.assert_found("runtime/plan.cpp", text, 2, remedy)
                self.assert_found("actors/ledger.cpp", text, 2, remedy)
                self.assert_found("tests/actors/ledger.cpp", text, 2, remedy)
                self.assert_found("runtime/clockwork.cpp", text, 2, remedy)
                self.assert_allowed("runtime/clock.cpp", text)
                self.assert_allowed("transports/wire.cpp", text)
                self.assert_allowed("tests/transports/wire.cpp", text)
                self.assert_allowed("bench/plan_bench.cpp", text)

    def test_sleep_distributions_and_capture_of_everything_are_banned_everywhere(self):
        for call, remedy in [
                ("std::this_thread::sleep_for(1s);", "wait for an event"),
                ("usleep(3);", "wait for an event"),
                ("std::uniform_int_distribution<int> d;", "engine's own numbers"),
                ("g([=] { h(); });", "name what is captured"),
                ("g([=, &x] { h(); });", "name what is captured")]:
            with self.subTest(call):
                self.assert_found("bench/plan_bench.cpp", f"\nvoid f() {{ {call} }}\n", 2, remedy)

    def test_what_is_only_named_in_a_comment_or_a_string_is_allowed(self):
        self.assert_allowed("runtime/plan.cpp", "// Not steady_clock::now().\n/* std::thread */\n")
        self.assert_allowed("runtime/plan.cpp", 'auto text = "std::thread \\" random_device";\n')
        self.assert_allowed("runtime/plan.cpp", 'auto text = R"x(std::thread)x";\n')
        self.assert_allowed("runtime/plan.cpp", "auto f = [a = 1, b] { return a + b; };\n")
        self.assert_allowed("runtime/plan.cpp", "int n = 1'000; std::thread::id other;\n")

    def test_includes_point_downwards_only(self):
        self.assert_found(
            "runtime/plan.cpp", '\n#include "actors/member.hpp"\n', 2, "downwards only")
        self.assert_found("runtime/plan.cpp", '#include "tests/plan.hpp"\n', 1, "downwards only")
        self.assert_allowed("adapters/plan.cpp", '#include "actors/member.hpp"\n')
        self.assert_allowed("tests/runtime/plan.cpp", '#include "adapters/layout.hpp"\n')

    def test_a_project_header_is_included_by_its_path_from_the_root(self):
        self.assert_found("runtime/plan.cpp", '#include "box.hpp"\n', 1, "path from the root")

    def test_the_own_header_comes_first(self):
        self.assert_found(
            "runtime/box.cpp", '#include <vector>\n#include "runtime/box.hpp"\n', 1, "own header")

    def test_third_parties_stay_in_their_layer(self):
        for include, allowed in [
                ("caf/all.hpp", "actors/ledger.cpp"), ("capnp/message.h", "runtime/codec.cpp"),
                ("kj/exception.h", "runtime/codec.cpp")]:
            with self.subTest(include):
                text = f"#include <{include}>\n"
                self.assert_found("transports/shm.cpp", text, 1, "only")
                self.assert_allowed(allowed, text)
                self.assert_allowed(f"tests/{allowed}", text)
        for include in ["infiniband/verbs.h", "rdma/rdma_cma.h", "cuda_runtime.h", "nccl.h",
                        "boost/asio.hpp"]:
            with self.subTest(include):
                self.assert_found("runtime/plan.cpp", f"#include <{include}>\n", 1, "only")

    def test_files_lines_and_functions_have_a_longest(self):
        self.assert_found("runtime/plan.hpp", "#pragma once\n// Why.\n" + "\n" * 299, 301, "300 at")
        self.assert_allowed("runtime/plan.hpp", "#pragma once\n// Why.\n" + "\n" * 298)
        self.assert_found("runtime/plan.cpp", "\n" * 501, 501, "500 at")
        self.assert_found("runtime/plan.cpp", "\n" + "x" * 101 + "\n", 2, "101 columns")
        self.assert_allowed("runtime/plan.cpp", "é" * 100 + "\n")
        function = "namespace weir {\nstruct Plan {\n  void f(int a) {{\n{}  }}\n}};\n}}\n"
        function = function.replace("weir {", "weir {{").replace("Plan {", "Plan {{")
        self.assert_found("runtime/plan.cpp", function.format("    g();\n" * 69), 3, "71 lines")
        self.assert_allowed("runtime/plan.cpp", function.format("    g();\n" * 68))
        self.assert_found("tests/runtime/plan.cpp",
                          "TEST_CASE() {\n" + "  if (a) { b(); }\n" * 70 + "}\n", 1, "72 lines")

    def test_a_header_begins_with_its_guard_and_its_reason(self):
        self.assert_found("runtime/plan.hpp", "// Why.\n#pragma once\n", 1, "#pragma once")
        self.assert_found("runtime/plan.hpp", "#pragma once\n\n", 2, "why the file exists")

    def test_a_test_file_says_its_goal_first(self):
        self.assert_found("tests/runtime/plan_test.cpp", "TEST_CASE() {\n}  // end\n", 1, "goal")

    def test_names_say_what_a_file_holds(self):
        for path in ["runtime/utils.cpp", "runtime/string_helpers.cpp", "tests/common/x.cpp"]:
            with self.subTest(path):
                self.assert_found(path, "", 1, "names no thing")
        self.assert_allowed("runtime/commonality.cpp", "")

    def test_nothing_new_appears_at_the_top(self):
        self.assert_found("notes.txt", "", 1, "does not belong at the top")
        self.assert_allowed(".gitignore", "")

    def test_each_folder_of_a_layer_has_a_page(self):
        self.assertEqual(
            [("transports/shm/README.md", 1)],
            [found[:2] for found in findings(files={"transports/shm/ring.cpp": ""})])
        self.assertEqual(
            [("examples/README.md", 1)],
            [found[:2] for found in findings(files={"examples/embed.cpp": ""})])
        self.assert_allowed("runtime/internal/cut.cpp", "")
        self.assert_allowed("tests/runtime/plan.cpp", "")
        self.assert_found("runtime/README.md", "\n" * 61, 61, "page")


if __name__ == "__main__":
    unittest.main()
