// The wire and the threads that use it. This process plays the server.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "abi/base_session.h"
#include "abi/launch.h"
#include "abi/wire.h"
#include "channel/heartbeat.h"
#include "channel/log_forwarder.h"
#include "channel/refusal.h"
#include "check.h"
#include "host_gpu.h"
#include "peer.h"

using namespace envpack;
using test::Peer;

namespace {

test::HostGpu no_gpu;

abi::Launch LaunchFor(Peer& peer) {
  const std::string control = std::to_string(peer.control);
  const char* arguments[] = {"stub",
                             "/models/m/1/model.py",
                             peer.region.name().c_str(),
                             "1048576",
                             "1048576",
                             "1",
                             "/back",
                             control.c_str(),
                             "m_0_0",
                             "DEFAULT"};
  return abi::ParseLaunch(10, arguments);
}

}  // namespace

CASE(launch_reads_the_servers_command_line) {
  const char* arguments[] = {"stub", "/m/1/model.py", "region", "1048576", "2097152",
                             "77",   "/back",         "336",    "m_0_0"};
  const abi::Launch launch = abi::ParseLaunch(9, arguments);
  CHECK_EQ(launch.model_file, "/m/1/model.py");
  CHECK_EQ(launch.region, "region");
  CHECK_EQ(launch.region_growth, 2097152u);
  CHECK_EQ(launch.server_pid, 77);
  CHECK_EQ(launch.backend_directory, "/back");
  CHECK_EQ(launch.control_handle, 336);
  CHECK_EQ(launch.name, "m_0_0");
  CHECK_EQ(launch.runtime_directory, "DEFAULT");
}

CASE(launch_names_the_wrong_argument) {
  const char* arguments[] = {"stub", "m", "r", "1", "x", "77", "/back", "336", "m_0_0"};
  CHECK_HAS(THROWN(std::invalid_argument, abi::ParseLaunch(9, arguments)),
            "growth of the region is not a number: 'x'");
  CHECK_HAS(THROWN(std::invalid_argument, abi::ParseLaunch(8, arguments)), "started by a Triton server");
  arguments[4] = "0";
  CHECK_HAS(THROWN(std::invalid_argument, abi::ParseLaunch(9, arguments)), "growth");
  arguments[4] = "1";
  arguments[7] = "336 ";
  CHECK_HAS(THROWN(std::invalid_argument, abi::ParseLaunch(9, arguments)), "control record");
}

CASE(wire_sends_the_startup_message) {
  Peer peer;
  abi::FrontSession session(LaunchFor(peer), peer.layouts.release(), abi::MakeJournal());
  CHECK(!peer.from_stub_answers.TryPop(0));
  session.Announce();
  CHECK_EQ(peer.from_stub_answers.Pop(), 0);
}

CASE(log_lines_that_wait_for_the_server_have_a_limit) {
  Peer peer;
  const auto wire = abi::OpenWire(LaunchFor(peer), peer.layouts.release(), no_gpu);
  for (const auto& [size, most] : {std::pair<std::size_t, int>{1, 4097}, {100000, 43}}) {
    channel::LogForwarder forwarder(*wire);
    int written = 0;
    abi::LogLine line{abi::LogLevel::kInfo, std::string(size, 'x'), "model.py", 1};
    while (forwarder.TryWrite(line)) {
      ++written;
      line.message = std::string(size, 'x');
    }
    CHECK_EQ(line.message, std::string(size, 'x'));
    CHECK(most - 1 <= written && written <= most);  // one may be on its way to the server
    std::thread writer([&] { forwarder.Write({abi::LogLevel::kInfo, "waited", "model.py", 2}); });
    for (int i = 0; i < written; ++i) CHECK_EQ(peer.TakeLog().message, std::string(size, 'x'));
    CHECK_EQ(peer.TakeLog().message, "waited");
    writer.join();
  }
}

CASE(wire_answers_and_gives_all_memory_back) {
  Peer peer;
  const auto wire = abi::OpenWire(LaunchFor(peer), peer.layouts.release(), no_gpu);
  const std::uint64_t before = peer.region.FreeBytes();
  std::thread stub([&] {
    for (int round = 0; round < 3; ++round) {
      const auto command = wire->Receive();
      const auto& requests = std::get<abi::ExecuteCommand>(command).requests;
      abi::Response response;
      response.outputs = requests.at(0).inputs;
      wire->AnswerExecute(std::vector<std::optional<abi::Response>>{response});
    }
    static_cast<void>(std::get<abi::ExecuteCommand>(wire->Receive()));
    wire->AnswerExecute(abi::ExecuteFailure{"no"});
  });
  test::PeerRequest request;
  request.inputs = {{"IN", 11, {1}, "abcd"}};
  for (int round = 0; round < 3; ++round) {
    peer.SendExecute({request});
    const auto answer = peer.TakeExecute();
    CHECK(!answer.error);
    CHECK_EQ(answer.responses.at(0).outputs.at(0).bytes, "abcd");
    peer.Drop();
  }
  peer.SendExecute({request});
  CHECK_EQ(peer.TakeExecute().error.value_or(""), "no");
  peer.Drop();
  stub.join();
  CHECK_EQ(peer.region.FreeBytes(), before);
}

CASE(wire_reports_an_unknown_command) {
  Peer peer;
  const auto wire = abi::OpenWire(LaunchFor(peer), peer.layouts.release(), no_gpu);
  peer.SendCommand(99);
  CHECK(std::holds_alternative<abi::UnknownCommand>(wire->Receive()));
}

CASE(refusal_answers_every_command_with_the_reason) {
  Peer peer;
  const auto wire = abi::OpenWire(LaunchFor(peer), peer.layouts.release(), no_gpu);
  std::thread stub([&] { channel::RefuseEverything(*wire, "no Python here"); });
  peer.SendCommand(99);
  peer.SendInitialize({});
  CHECK_EQ(peer.TakeInitialize().value_or(""), "no Python here");
  stub.join();
}

CASE(heartbeat_beats_until_it_is_destroyed) {
  Peer peer;
  abi::FrontSession session(LaunchFor(peer), peer.layouts.release(), abi::MakeJournal());
  {
    const channel::Heartbeat heartbeat(session, getppid());
    CHECK(peer.BeatsAgain());
    CHECK(peer.BeatsAgain());
  }
  CHECK(!peer.BeatsAgain(1000));
}

CASE(a_stopped_heartbeat_does_not_beat_until_it_goes_on) {
  Peer peer;
  abi::FrontSession session(LaunchFor(peer), peer.layouts.release(), abi::MakeJournal());
  channel::Heartbeat heartbeat(session, getppid());
  heartbeat.StopWhile([&] {
    peer.BeatsAgain(0);
    CHECK(!peer.BeatsAgain(1000));
  });
  CHECK(peer.BeatsAgain());
}

CASE(a_heartbeat_goes_on_when_what_it_was_stopped_for_fails) {
  Peer peer;
  abi::FrontSession session(LaunchFor(peer), peer.layouts.release(), abi::MakeJournal());
  channel::Heartbeat heartbeat(session, getppid());
  CHECK_EQ(THROWN(std::runtime_error, heartbeat.StopWhile([] { throw std::runtime_error("no process"); })),
           "no process");
  CHECK(peer.BeatsAgain());
}

CASE(log_lines_arrive_in_order_and_leave_no_memory_behind) {
  Peer peer;
  const auto wire = abi::OpenWire(LaunchFor(peer), peer.layouts.release(), no_gpu);
  const std::uint64_t before = peer.region.FreeBytes();
  {
    std::thread server([&] {
      for (int number = 0; number < 100; ++number) {
        const test::LogLine line = peer.TakeLog();
        if (line.message != "line " + std::to_string(number) || line.line != number) std::abort();
        if (line.file != "model.py" || line.level != number % 4) std::abort();
      }
    });
    {
      channel::LogForwarder forwarder(*wire);
      for (int number = 0; number < 100; ++number) {
        forwarder.Write(
            {static_cast<abi::LogLevel>(number % 4), "line " + std::to_string(number), "model.py", number});
      }
    }
    server.join();
  }
  CHECK_EQ(peer.region.FreeBytes(), before);
}

CASE(cuda_pool_is_rejected_with_a_reason) {
  Peer peer;
  const auto wire = abi::OpenWire(LaunchFor(peer), peer.layouts.release(), no_gpu);
  std::thread stub([&] {
    while (wire->ServeServerMessage([](abi::ServerMessage) {})) {
    }
  });
  CHECK_HAS(peer.OfferCudaPool().value_or(""), "no such pool");
  peer.to_stub_messages.Push(0);
  stub.join();
}
