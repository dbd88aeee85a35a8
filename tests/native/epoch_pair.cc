#include "epoch_pair.h"

#include <cstdio>
#include <cstdlib>

#include "abi/release.h"

namespace envpack::test {

namespace {

Peer::Options OptionsFor(abi::Release epoch, bool decoupled) {
  Peer::Options options;
  options.release = epoch;
  options.decoupled = decoupled;
  options.wakes_spuriously = true;
  return options;
}

abi::Launch LaunchFor(const Peer& peer) {
  abi::Launch launch;
  launch.region = peer.region.name();
  launch.region_growth = 1 << 20;
  launch.control_handle = peer.control;
  return launch;
}

}  // namespace

Pair::Pair(abi::Release epoch, bool decoupled)
    : peer(OptionsFor(epoch, decoupled)), wire(abi::OpenWire(LaunchFor(peer), epoch, gpu)) {
  peer.region.Create(1 << 17);  // the handles of all further blocks need more than 16 bits
}

void Pair::GiveUp(const std::string& why) {
  std::fprintf(stderr, "Triton %s: %s\n", peer.layouts.Name().c_str(), why.c_str());
  peer.region.Unlink();
  std::_Exit(1);
}

void ForEachEpoch(const Epochs& epochs, const std::function<void(Pair&)>& body) {
  for (const abi::Release epoch : abi::kBuiltEpochs) {
    if (epoch < epochs.since) continue;
    try {
      Pair pair(epoch, epochs.decoupled);
      const std::uint64_t before = pair.peer.region.FreeBytes();
      body(pair);
      pair.peer.Drop();
      CHECK_EQ(pair.peer.region.FreeBytes(), before);
      CHECK(pair.peer.region.IsConsistent());
    } catch (const std::exception& error) {
      throw Failed("Triton " + abi::NameOf(epoch) + ": " + error.what());
    }
  }
}

std::string BytesOf(const abi::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data), tensor.byte_size};
}

abi::Tensor TensorOf(const std::string& name, std::vector<std::int64_t> dims, const std::string& bytes,
                     abi::DataType dtype) {
  abi::Tensor tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.dims = std::move(dims);
  const auto kept = std::make_shared<const std::string>(bytes);
  tensor.data = kept->data();
  tensor.byte_size = kept->size();
  tensor.owner = kept;
  return tensor;
}

abi::Response ResponseOf(const std::vector<abi::Tensor>& outputs) {
  abi::Response response;
  response.outputs = outputs;
  return response;
}

}  // namespace envpack::test
