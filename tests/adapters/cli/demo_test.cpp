#include "adapters/cli/demo.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/adapters/cli/run_weir.hpp"

namespace weir::cli {

// Goal: the demo moves and proves every byte between any two layouts, refuses what can't work
// before it starts anything, and whatever happens to its processes, ends in one line and leaves
// none behind. Method: the program itself, with its tiny checkpoint; processes are killed once it
// has said that all shards hold their plan, so that nothing depends on timing.

namespace {

Run run_demo_process(std::vector<std::string> arguments) {
  static const QuickFolder cache;
  arguments.insert(arguments.begin(), {"demo", "--small"});
  return run_process({.before = "XDG_CACHE_HOME='" + (cache / "").string() + "'",
                      .arguments = std::move(arguments)});
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Those whose parent is `parent`, from /proc.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    // "PID (NAME) STATE PARENT …", and the name may hold anything.
    const auto after_name = line.rfind(')');
    if (after_name == std::string::npos) continue;
    if (std::stol(line.substr(after_name + 4)) == parent) children.push_back(std::stoi(name));
  }
  return children;
}

/// A demo that would go on for hours, caught once all of its shards hold their plan.
class RunningDemo {
 public:
  RunningDemo() {
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    REQUIRE(pipe2(out.data(), O_CLOEXEC) == 0);
    REQUIRE(pipe2(err.data(), O_CLOEXEC) == 0);
    const std::string cache = "XDG_CACHE_HOME=" + (cache_ / "").string();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      execl("/usr/bin/env", "env", cache.c_str(), WEIR_PROGRAM, "demo", "--small",
            "--versions=1000000", nullptr);
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
    std::string said;
    while (said.find("copies") == std::string::npos) {
      const std::string more = read_some(out_);
      REQUIRE_FALSE(more.empty());
      said += more;
    }
    shards_ = children_of(pid_);
    for (const pid_t shard : shards_) {
      ends_.push_back(static_cast<int>(syscall(SYS_pidfd_open, shard, 0)));
    }
  }
  RunningDemo(const RunningDemo&) = delete;
  RunningDemo& operator=(const RunningDemo&) = delete;
  ~RunningDemo() {
    for (const int end : ends_) close(end);
    close(out_);
    close(err_);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::vector<pid_t>& shards() const { return shards_; }

  /// The wait status of the demo, once it has ended.
  [[nodiscard]] int wait() const {
    int status = 0;
    REQUIRE(waitpid(pid_, &status, 0) == pid_);
    return status;
  }
  /// What it said on standard error, without the line about the checkpoint.
  [[nodiscard]] std::string complaint() const {
    std::string text;
    for (std::string more = read_some(err_); !more.empty(); more = read_some(err_)) text += more;
    const auto own = text.find("weir: ");
    return own == std::string::npos ? text : text.substr(own);
  }
  /// Whether every shard ends within ten seconds.
  [[nodiscard]] bool shards_end() const {
    for (const int end : ends_) {
      // A process that was gone before it could be watched has no descriptor.
      if (end < 0) continue;
      pollfd wait = {end, POLLIN, 0};
      if (poll(&wait, 1, 10'000) != 1) return false;
    }
    return true;
  }

 private:
  static std::string read_some(int descriptor) {
    std::array<char, 4096> buffer{};
    const ssize_t count = read(descriptor, buffer.data(), buffer.size());
    return {buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
  }

  QuickFolder cache_;
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::vector<pid_t> shards_;
  std::vector<int> ends_;
};

constexpr std::size_t default_shards = 4 + 2 * 4;

}  // namespace

TEST_CASE("the demo proves every byte of every version", "[cli][demo]") {
  const Run run = run_demo_process({});
  INFO(run.err);
  REQUIRE(run.status == 0);
  REQUIRE(count_of(run.out, "  1.000  ") == 5);
  REQUIRE(contains(run.out, "agreed with the independent reference in all 5 versions"));
}

TEST_CASE("the demo runs between any two layouts, with replicas and other types on either side",
          "[cli][demo]") {
  const std::vector<std::vector<std::string>> pairs = {
      {"--train=fsdp2:dp=3", "--rollout=hf", "--replicas=1"},
      {"--train=vllm:tp=2", "--rollout=megatron:tp=4,vocab_multiple=8", "--replicas=1"},
      {"--train=megatron:tp=2,dp=2,dtype=f32", "--rollout=vllm:tp=8", "--replicas=1"},
      {"--train=fsdp2:dp=2,hsdp=2", "--rollout=fsdp2:dp=3,dtype=f32", "--replicas=2"},
      {"--train=megatron:tp=2,pp=2,vpp=2", "--rollout=vllm:tp=1", "--private-memory"},
  };
  for (std::vector<std::string> arguments : pairs) {
    arguments.emplace_back("--versions=2");
    const Run run = run_demo_process(arguments);
    INFO(arguments[0] << " " << arguments[1] << ": " << run.err);
    REQUIRE(run.status == 0);
    REQUIRE(contains(run.out, "agreed with the independent reference in all 2 versions"));
  }
}

TEST_CASE("a demo that cannot work is refused in one line before anything starts", "[cli][demo]") {
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"--train=megatron:tp=3", "tp=3"},     {"--train=nemo", "nemo"},
      {"--rollout=vllm:vpp=2", "vpp"},       {"--replicas=0", "--replicas"},
      {"--versions=0", "--versions"},        {"--model=/nowhere", "/nowhere"},
      {"--replicas=64x", "--replicas"},      {"--nonsense", "--nonsense"},
      {"--rollout=vllm:tp=16", "--rollout"},
  };
  run_demo_process({"--versions=1"});  // Makes the checkpoint, which is said on standard error.
  for (const auto& [argument, named] : requests) {
    const Run run = run_demo_process({argument});
    INFO(argument << ": " << run.err);
    REQUIRE(run.status == 2);
    REQUIRE(is_one_line(run.err));
    REQUIRE(contains(run.err, named));
  }
}

TEST_CASE("a demo without a place for its checkpoint says where to give it one", "[cli][demo]") {
  const Run nowhere =
      run_process({.before = "env -u HOME -u XDG_CACHE_HOME", .arguments = {"demo", "--small"}});
  REQUIRE(nowhere.status == 2);
  REQUIRE(is_one_line(nowhere.err));
  REQUIRE(contains(nowhere.err, "set XDG_CACHE_HOME"));
  const Run unwritable =
      run_process({.before = "XDG_CACHE_HOME=/proc/none", .arguments = {"demo", "--small"}});
  REQUIRE(unwritable.status == 2);
  REQUIRE(contains(unwritable.err, "set XDG_CACHE_HOME to another folder"));
}

TEST_CASE("a shard that is killed ends the demo with its name, and all others end", "[cli][demo]") {
  const RunningDemo demo;
  REQUIRE(demo.shards().size() == default_shards);
  REQUIRE(kill(demo.shards()[6], SIGKILL) == 0);
  const std::string complaint = demo.complaint();
  const int status = demo.wait();
  INFO(complaint);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 1);
  REQUIRE(is_one_line(complaint));
  REQUIRE(contains(complaint, "rollout"));
  REQUIRE(demo.shards_end());
}

TEST_CASE("Ctrl-C ends the demo by that signal, and no shard stays", "[cli][demo]") {
  const RunningDemo demo;
  REQUIRE(kill(demo.pid(), SIGINT) == 0);
  const std::string complaint = demo.complaint();
  const int status = demo.wait();
  INFO(complaint);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGINT);
  REQUIRE(demo.shards_end());
}

TEST_CASE("a demo that is killed takes its shards with it", "[cli][demo]") {
  const RunningDemo demo;
  REQUIRE(kill(demo.pid(), SIGKILL) == 0);
  (void)demo.wait();
  REQUIRE(demo.shards_end());
}

TEST_CASE("a shard does not outlive a demo that is gone already", "[cli][demo]") {
  const Run run =
      run_process({.arguments = {"demo-shard", "--side=trainer", "--replica=0", "--rank=0",
                                 "--replica-ranks=1", "--model=/nowhere", "--layout=hf", "--port=1",
                                 "--parent=1", "--threads=1", "--transport=shm"}});
  REQUIRE(run.status == 1);
  REQUIRE(contains(run.err, "the demo that started this shard is gone"));
}

}  // namespace weir::cli
