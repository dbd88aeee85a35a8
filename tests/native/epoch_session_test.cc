// What every stub exchanges with the server of every epoch, with or without a model.
#include "abi/base_session.h"
#include "check.h"
#include "epoch_pair.h"

using namespace envpack;
using namespace envpack::test;

namespace {

// Answers one more batch, which releases the command before it.
void AnswerBatch(Pair& pair) {
  pair.peer.SendExecute({PeerRequest{}});
  pair.Both(
      [&] {
        CHECK_EQ(std::get<abi::ExecuteCommand>(pair.wire->Receive()).requests.size(), 1u);
        pair.wire->AnswerExecute(abi::ExecuteFailure{"done"});
      },
      [&] { pair.peer.TakeExecute(); });
}

}  // namespace

CASE(epoch_announces_itself_where_the_server_waits_for_it) {
  ForEachEpoch([](Pair& pair) {
    CHECK(!pair.peer.from_stub_answers.TryPop(0));
    dynamic_cast<abi::BaseSession<abi::Wire>&>(*pair.wire).Announce();
    if (pair.release() >= 2305) CHECK_EQ(pair.peer.from_stub_answers.Pop(), 0);
    CHECK(!pair.peer.from_stub_answers.TryPop(0));
  });
}

CASE(epoch_reads_and_writes_the_control_record) {
  ForEachEpoch([](Pair& pair) {
    auto* control = pair.peer.region.As<records::Control>(pair.peer.control);
    CHECK_EQ(pair.wire->ServerRelease(), pair.release());
    CHECK(!pair.wire->UsesEnvironment());
    CHECK(!pair.wire->Decoupled());
    control->uses_env = control->decoupled = true;
    CHECK(pair.wire->UsesEnvironment());
    CHECK(pair.wire->Decoupled());
    CHECK(!control->stub_health);
    dynamic_cast<abi::BaseSession<abi::Wire>&>(*pair.wire).Beat();
    CHECK(control->stub_health);
    CHECK_EQ(pthread_mutex_trylock(&control->stub_health_mutex), 0);
    pthread_mutex_unlock(&control->stub_health_mutex);
    CHECK_EQ(pair.wire->FreeBytes(), pair.peer.region.FreeBytes());
  });
}

CASE(epoch_initializes) {
  ForEachEpoch([](Pair& pair) {
    const std::map<std::string, std::string> arguments{
        {"model_name", "m"}, {"model_config", "{}"}, {"empty", ""}};
    for (const bool fails : {true, false}) {
      std::optional<std::string> error;
      pair.peer.SendInitialize(arguments);
      pair.Both(
          [&] {
            CHECK(std::get<abi::InitializeCommand>(pair.wire->Receive()).arguments == arguments);
            pair.wire->AnswerInitialize(fails ? abi::InitializeAnswer(abi::Failure{"no weights"})
                                              : std::nullopt);
          },
          [&] { error = pair.peer.TakeInitialize(); });
      CHECK_EQ(error.value_or("none"), fails ? "no weights" : "none");
    }
  });
}

CASE(epoch_completes_a_configuration) {
  ForEachEpoch([](Pair& pair) {
    for (const bool fails : {true, false}) {
      std::optional<std::string> error;
      std::string config;
      pair.peer.SendAutoComplete(R"({"name": "m"})");
      pair.Both(
          [&] {
            CHECK_EQ(std::get<abi::AutoCompleteCommand>(pair.wire->Receive()).model_config,
                     R"({"name": "m"})");
            pair.wire->AnswerAutoComplete(fails ? abi::AutoCompleteAnswer(abi::Failure{"no such type"})
                                                : abi::AutoCompleteAnswer(R"({"completed": true})"));
          },
          [&] { error = pair.peer.TakeAutoComplete(&config); });
      CHECK_EQ(error.value_or("none"), fails ? "no such type" : "none");
      CHECK_EQ(config, fails ? "" : R"({"completed": true})");
    }
  });
}

CASE(epoch_finalizes) {
  ForEachEpoch([](Pair& pair) {
    const Handle sent = pair.peer.SendFinalize();
    static_cast<void>(std::get<abi::FinalizeCommand>(pair.wire->Receive()));
    pair.wire->AnswerFinalize();
    CHECK(pair.peer.TakeFinalize(sent));
    AnswerBatch(pair);
  });
}

CASE(epoch_ignores_an_unknown_command) {
  ForEachEpoch([](Pair& pair) {
    pair.peer.SendCommand(99);
    CHECK(std::holds_alternative<abi::UnknownCommand>(pair.wire->Receive()));
    AnswerBatch(pair);
  });
}
