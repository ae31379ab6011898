// The threads of a pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace srl {

// Threads that work as long as there is work, and then park. They end with the team.
class Team {
 public:
  // Does a task, and gives whether there was one; called by all threads.
  using Work = std::function<bool()>;

  // Starts nothing.
  explicit Team(Work work) : work_(std::move(work)) {}
  ~Team() { End(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Starts `threads` threads and pins thread i to cores[i % cores.size()], if there are any.
  // Throws std::invalid_argument for a core that the machine does not have, and std::runtime_error
  // if a thread cannot be started.
  void Start(int threads, const std::vector<int>& cores);

  bool empty() const { return threads_.empty(); }

  // Notes that there is new work, which Wake makes known.
  void Expect() { unannounced_ = true; }
  // Wakes the threads, where they do not know of all work.
  void Wake();

 private:
  void Loop();
  void End();

  Work work_;
  bool unannounced_ = false;
  std::atomic<std::uint32_t> signal_ = 0;  // bumped to wake parked threads
  std::atomic<int> parked_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace srl
