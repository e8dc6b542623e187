#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/adapters/cli/run_weir.hpp"
#include "tests/adapters/reshard/random_checkpoint.hpp"

namespace weir::cli {

// Goal: `weir reshard` does what it says, and when it can't it says why in one line, with the right
// status, and leaves nothing. Method: a small checkpoint, and every kind of bad request and
// trouble, with the folder's content looked at after each.

namespace {

struct Scene {
  Scene() {
    Random random(5);
    ModelConfig config{.family = "qwen3",
                       .hidden_size = 16,
                       .num_hidden_layers = 4,
                       .num_attention_heads = 8,
                       .num_key_value_heads = 2,
                       .head_dim = 4,
                       .intermediate_size = 24,
                       .vocab_size = 100,
                       .tie_word_embeddings = true};
    config.qk_norm = true;
    write_random_checkpoint(folder / "in", config, random);
  }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder / name).string(); }

  QuickFolder folder;
};

}  // namespace

TEST_CASE("the real program takes a checkpoint through four layouts and back", "[cli]") {
  const Scene scene;
  const auto step = [&](const std::string& from, const std::string& to, const std::string& out) {
    const Run result = run_process({.arguments = {"reshard", scene.path(from), "--to", to, "--out",
                                                  scene.path(out), "--verify"}});
    INFO(result.err);
    REQUIRE(result.status == 0);
    REQUIRE(contains(result.out, "agree with the reference"));
  };
  step("in", "megatron:tp=4,pp=2", "a");
  step("a", "vllm:tp=4", "b");
  step("b", "fsdp2:dp=3", "c");
  step("c", "hf", "d");
  REQUIRE(tensors_in(scene.folder / "d") == tensors_in(scene.folder / "in"));
}

TEST_CASE("progress is a line per stage, and drawn only where it is asked for", "[cli]") {
  const Scene scene;
  const Run plain =
      run({"reshard", scene.path("in"), "--to", "vllm:tp=2", "--out", scene.path("a"), "--verify"});
  REQUIRE(plain.status == 0);
  REQUIRE(plain.err.starts_with("reshard: "));
  REQUIRE(contains(plain.err, "\nverify: "));
  REQUIRE_FALSE(contains(plain.err, "\x1b"));
  const Run drawn = run(
      {"reshard", scene.path("in"), "--to", "vllm:tp=2", "--out", scene.path("b"), "--progress"});
  REQUIRE(drawn.status == 0);
  REQUIRE(contains(drawn.err, "\x1b[Kreshard ["));
}

TEST_CASE("bad requests end in one line and status 2, and leave nothing", "[cli]") {
  const Scene scene;
  const std::string in = scene.path("in");
  const std::string out = scene.path("out");
  const std::vector<std::pair<std::vector<std::string>, std::string>> requests = {
      {{scene.path("none"), "--to", "hf", "--out", out}, "none"},
      {{in, "--to", "frob:tp=2", "--out", out}, "--to frob:tp=2"},
      {{in, "--to", "vllm:frob=2", "--out", out}, "frob"},
      {{in, "--to", "vllm:tp=two", "--out", out}, "tp=two"},
      {{in, "--to", "vllm:tp=3", "--out", out}, "tp"},
      {{in, "--to", "megatron:pp=3", "--out", out}, "layers="},
      {{in, "--to", "megatron:dp=2", "--out", out}, "leave dp out"},
      {{in, "--from", "vllm:tp=2", "--to", "hf", "--out", out}, "leave --from out"},
      {{in, "--to", "hf", "--out", scene.path("no/out")}, "no"},
      {{in, "--to", "hf", "--out", in}, "is the input"},
      {{in, "--to", "hf", "--out", in + "/config.json"}, "config.json"},
      {{scene.folder.path().string(), "--to", "hf", "--out", out}, "no *.safetensors"},
  };
  for (const auto& [arguments, part] : requests) {
    std::vector<std::string> all = {"reshard"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Run result = run(all);
    INFO(result.err);
    REQUIRE(result.status == 2);
    REQUIRE(result.out.empty());
    REQUIRE(is_one_line(result.err));
    REQUIRE(contains(result.err, part));
    REQUIRE(names_in(scene.folder.path()) == std::vector<std::string>{"in"});
  }
}

TEST_CASE("an earlier output is kept without --force and replaced with it", "[cli]") {
  const Scene scene;
  const auto to = [&](const std::string& layout, bool force) {
    std::vector<std::string> arguments = {"reshard", scene.path("in"), "--to",
                                          layout,    "--out",          scene.path("out")};
    if (force) arguments.push_back("--force");
    return run(arguments);
  };
  REQUIRE(to("fsdp2:dp=2", false).status == 0);
  const Run kept = to("hf", false);
  REQUIRE(kept.status == 2);
  REQUIRE(is_one_line(kept.err));
  REQUIRE(contains(kept.err, "--force"));
  REQUIRE(names_in(scene.folder / "out").size() == 3);
  REQUIRE(to("hf", true).status == 0);
  REQUIRE(names_in(scene.folder / "out").size() == 2);
  REQUIRE(names_in(scene.folder.path()) == std::vector<std::string>{"in", "out"});
}

TEST_CASE("a write that fails in the middle leaves nothing", "[cli]") {
  const Scene scene;
  // No file of the second layout may be as large as one of its ranks needs.
  const Run result = run_process({.before = "ulimit -f 8;",
                                  .arguments = {"reshard", scene.path("in"), "--to", "fsdp2:dp=2",
                                                "--out", scene.path("out")}});
  INFO(result.err);
  REQUIRE(result.status == 1);
  REQUIRE(is_one_line(result.err));
  REQUIRE(names_in(scene.folder.path()) == std::vector<std::string>{"in"});
}

TEST_CASE("an interrupted program leaves nothing", "[cli]") {
  const Scene scene;
  const std::string in = scene.path("in");
  const std::string out = scene.path("out");
  const std::string err = scene.path("err");
  // The signal waits already when the program starts (masks and waiting signals outlive exec), so
  // that the first question finds it, whatever the timing.
  const pid_t child = fork();
  if (child == 0) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGINT, SIG_DFL);
    kill(getpid(), SIGINT);
    if (freopen(err.c_str(), "w", stderr) == nullptr) _exit(98);
    execl(WEIR_PROGRAM, "weir", "reshard", in.c_str(), "--to", "vllm:tp=2", "--out", out.c_str(),
          static_cast<char*>(nullptr));
    _exit(99);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 1);
  REQUIRE(read_bytes(scene.folder / "err") == "weir: interrupted; nothing was left behind\n");
  REQUIRE(names_in(scene.folder.path()) == std::vector<std::string>{"err", "in"});
}

}  // namespace weir::cli
