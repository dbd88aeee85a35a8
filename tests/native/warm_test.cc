// What fronts and templates send to each other, and the template's side of it. This process plays the fronts.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "base/descriptor.h"
#include "check.h"
#include "two_halves/body.h"
#include "warm/order.h"
#include "warm/template_service.h"

using namespace envpack;

namespace {

constexpr std::chrono::milliseconds kSoon(10'000);

Descriptor MemoryFile() { return Descriptor(memfd_create("test", MFD_CLOEXEC)); }

Assignment MakeOrder(abi::Command command) {
  Assignment order;
  order.launch.model_file = "/models/m/1/model.py";
  order.launch.region = "region";
  order.launch.region_growth = 1 << 20;
  order.launch.server_pid = getppid();
  order.launch.name = std::string(100'000, 'n');
  order.launch.has_last_argument = false;
  order.release = 2410;
  order.command = std::move(command);
  order.may_run_out_of_time = true;
  order.restarts = 7;
  order.last_death = "the model's process 1 exited";
  order.journal = std::make_shared<abi::JournalFile>(MemoryFile());
  order.report = std::make_shared<channel::Report>(MemoryFile());
  order.crash_output = std::make_shared<Descriptor>(MemoryFile());
  return order;
}

struct Pair {
  Pair() {
    int both[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) == 0);
    one = Descriptor(both[0]);
    other = Descriptor(both[1]);
  }
  Descriptor one, other;
};

sockaddr_un AddressOf(int socket) {
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  CHECK(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return address;
}

// A template whose workers do `work`, and end with its result.
class RunningTemplate {
 public:
  explicit RunningTemplate(std::function<int(const Assignment&)> work,
                           std::function<bool(const Assignment&)> initialize = nullptr) {
    Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    CHECK(bind(listener.number(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) == 0);
    CHECK(listen(listener.number(), 10) == 0);
    address_ = AddressOf(listener.number());
    const pid_t front = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    warm::TemplateService service(std::move(listener), getppid(), front);
    const Assignment order = service.Serve({fork, std::move(initialize)});
    _exit(work(order));
  }
  ~RunningTemplate() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // The kernel names sockets that bind nothing by five hexadecimal digits.
  Descriptor Connect() const {
    Descriptor front(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const socklen_t size = offsetof(sockaddr_un, sun_path) + 6;
    if (connect(front.number(), reinterpret_cast<const sockaddr*>(&address_), size) != 0) return {};
    return front;
  }

  bool Ends() const { return HasEnded(OpenProcess(pid_).number(), kSoon); }

 private:
  sockaddr_un address_{};
  pid_t pid_;
};

warm::Message Next(const Descriptor& socket) {
  pollfd event{socket.number(), POLLIN, 0};
  CHECK(poll(&event, 1, static_cast<int>(kSoon.count())) == 1);
  return warm::Receive(socket.number());
}

warm::Started StartedBy(const Descriptor& socket) {
  warm::Message message = Next(socket);
  CHECK(std::holds_alternative<warm::Started>(message));
  return std::get<warm::Started>(std::move(message));
}

int StatusFrom(const Descriptor& socket) {
  const warm::Message message = Next(socket);
  CHECK(std::holds_alternative<warm::Ended>(message));
  return std::get<warm::Ended>(message).status;
}

bool IsClosed(const Descriptor& socket) { return std::holds_alternative<std::monostate>(Next(socket)); }

int SleepForever(const Assignment&) {
  for (;;) pause();
}

}  // namespace

CASE(an_order_arrives_as_it_was_sent) {
  const Pair pair;
  const std::map<std::string, std::string> arguments{{"model_name", "m"}, {"model_config", "{\"a\": 1}"}};
  CHECK(warm::Send(pair.one.number(), MakeOrder(abi::InitializeCommand{arguments})));
  const warm::Message message = Next(pair.other);
  const auto& order = std::get<Assignment>(message);
  CHECK_EQ(order.launch.model_file, "/models/m/1/model.py");
  CHECK_EQ(order.launch.name.size(), 100'000u);
  CHECK_EQ(order.launch.region_growth, std::size_t{1} << 20);
  CHECK(!order.launch.has_last_argument);
  CHECK_EQ(order.release, 2410);
  CHECK(std::get<abi::InitializeCommand>(order.command).arguments == arguments);
  CHECK(order.may_run_out_of_time && !order.initialize_in_template);
  CHECK_EQ(order.restarts, 7u);
  CHECK_EQ(order.last_death, "the model's process 1 exited");
  CHECK(order.journal->descriptor() > 0 && order.report->descriptor() > 0 && *order.crash_output);
}

CASE(the_end_of_the_other_side_is_no_error) {
  Pair pair;
  pair.other.Close();
  CHECK(!warm::Send(pair.one.number(), warm::Retire{}));
  CHECK(std::holds_alternative<std::monostate>(warm::Receive(pair.one.number())));
}

CASE(messages_that_are_none_are_refused) {
  const Pair pair;
  CHECK(send(pair.one.number(), "x", 1, 0) == 1);
  CHECK_HAS(THROWN(std::runtime_error, warm::Receive(pair.other.number())), "wrong size");
  const char unknown[16] = "unknown";
  CHECK(send(pair.one.number(), unknown, sizeof(unknown), 0) == sizeof(unknown));
  CHECK_HAS(THROWN(std::runtime_error, warm::Receive(pair.other.number())), "no known kind");
  const char order[16] = "O";
  CHECK(send(pair.one.number(), order, sizeof(order), 0) == sizeof(order));
  CHECK_HAS(THROWN(std::runtime_error, warm::Receive(pair.other.number())), "lacks descriptors");
}

CASE(a_template_forks_a_worker_for_each_order_and_reports_its_end) {
  const RunningTemplate running([](const Assignment& order) { return static_cast<int>(order.restarts); });
  const Descriptor front = running.Connect();
  for (int i = 0; i < 3; ++i) {
    CHECK(warm::Send(front.number(), MakeOrder(abi::InitializeCommand{})));
    const warm::Started started = StartedBy(front);
    CHECK(HasEnded(started.process.number(), kSoon));
    const int status = StatusFrom(front);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  }
}

CASE(a_worker_ends_with_its_front_and_the_template_with_the_last) {
  const RunningTemplate running(SleepForever);
  Descriptor first = running.Connect(), second = running.Connect();
  CHECK(warm::Send(first.number(), MakeOrder(abi::InitializeCommand{})));
  CHECK(warm::Send(second.number(), MakeOrder(abi::InitializeCommand{})));
  const warm::Started one = StartedBy(first), other = StartedBy(second);
  first.Close();
  CHECK(HasEnded(one.process.number(), kSoon));
  CHECK(!HasEnded(other.process.number(), std::chrono::milliseconds(0)));
  second.Close();
  CHECK(HasEnded(other.process.number(), kSoon));
  CHECK(running.Ends());
}

CASE(a_worker_ends_with_its_template) {
  auto running = std::make_unique<RunningTemplate>(SleepForever);
  const Descriptor front = running->Connect();
  CHECK(warm::Send(front.number(), MakeOrder(abi::InitializeCommand{})));
  const warm::Started started = StartedBy(front);
  running.reset();
  CHECK(HasEnded(started.process.number(), kSoon));
  CHECK(IsClosed(front));
}

CASE(a_template_waits_for_instances_after_a_configuration) {
  const RunningTemplate running([](const Assignment&) { return 0; });
  Descriptor front = running.Connect();
  CHECK(warm::Send(front.number(), MakeOrder(abi::AutoCompleteCommand{"{}"})));
  StartedBy(front);
  StatusFrom(front);
  front.Close();
  const Descriptor instance = running.Connect();
  CHECK(warm::Send(instance.number(), MakeOrder(abi::InitializeCommand{})));
  StartedBy(instance);
}

CASE(a_retired_template_accepts_nobody_else) {
  const RunningTemplate running(SleepForever);
  const Descriptor front = running.Connect(), next = running.Connect();
  CHECK(warm::Send(front.number(), MakeOrder(abi::InitializeCommand{})));
  const warm::Started started = StartedBy(front);
  CHECK(warm::Send(next.number(), warm::Retire{}));
  CHECK(IsClosed(next));
  CHECK(!running.Connect());
  CHECK(!HasEnded(started.process.number(), std::chrono::milliseconds(0)));
}

CASE(what_is_no_message_ends_only_its_connection) {
  const RunningTemplate running([](const Assignment&) { return 0; });
  const Descriptor stranger = running.Connect(), front = running.Connect();
  CHECK(send(stranger.number(), "x", 1, 0) == 1);
  CHECK(IsClosed(stranger));
  CHECK(warm::Send(front.number(), MakeOrder(abi::InitializeCommand{})));
  StartedBy(front);
}

CASE(a_template_is_initialized_once) {
  int calls = 0;
  const auto initialize = [&](const Assignment&) { return ++calls > 0; };
  const RunningTemplate running([&](const Assignment&) { return calls; }, initialize);
  const Descriptor front = running.Connect();
  for (int i = 0; i < 2; ++i) {
    Assignment order = MakeOrder(abi::InitializeCommand{});
    order.initialize_in_template = true;
    CHECK(warm::Send(front.number(), order));
    StartedBy(front);
    CHECK_EQ(WEXITSTATUS(StatusFrom(front)), 1);
  }
}

CASE(a_template_that_cannot_be_initialized_ends) {
  const RunningTemplate running(SleepForever, [](const Assignment&) { return false; });
  const Descriptor front = running.Connect();
  Assignment order = MakeOrder(abi::InitializeCommand{});
  order.initialize_in_template = true;
  CHECK(warm::Send(front.number(), order));
  CHECK(IsClosed(front));
  CHECK(running.Ends());
}
