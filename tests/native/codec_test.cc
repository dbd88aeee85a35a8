#include <atomic>
#include <cstring>

#include "abi/epoch_reader.h"
#include "abi/epoch_writer.h"

#include "check.h"
#include "host_gpu.h"
#include "peer.h"

namespace records = envpack::abi::records;
namespace values = envpack::abi;
using envpack::shm::CorruptRegion;
using envpack::shm::Region;
using envpack::test::Peer;
using envpack::test::PeerRequest;
using envpack::test::PeerTensor;

namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr values::Release kRelease = 2410;

// The stub's side of a peer's region.
struct Attached {
  explicit Attached(Peer& peer)
      : region(peer.region.name(), kMiB), released(region, peer.memory_manager.handle()) {}

  Region region;
  envpack::shm::Queue released;
  envpack::test::HostGpu gpu;
  std::atomic<std::int32_t> device_buffers{0};
  values::EpochReader<kRelease> reader{region, gpu, released, device_buffers};
};

std::string BytesOf(const values::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data), tensor.byte_size};
}

values::Tensor TensorOf(const std::string& name, std::vector<std::int64_t> dims, const std::string& bytes) {
  values::Tensor tensor;
  tensor.name = name;
  tensor.dtype = values::DataType::kInt8;
  tensor.dims = std::move(dims);
  tensor.data = bytes.data();
  tensor.byte_size = bytes.size();
  return tensor;
}

}  // namespace

CASE(codec_reads_strings_with_nuls_and_none_at_all) {
  Peer peer;
  Attached stub(peer);
  const std::string odd("a\0b\xff", 4);
  CHECK(stub.reader.ReadString(peer.MakeString(odd)) == odd);
  CHECK_EQ(stub.reader.ReadString(peer.MakeString("")), "");
}

CASE(codec_reads_dictionaries) {
  Peer peer;
  Attached stub(peer);
  const std::map<std::string, std::string> dict{{"model_name", "m"}, {"model_version", "1"}, {"empty", ""}};
  CHECK(stub.reader.ReadDict(peer.MakeDict(dict)) == dict);
  CHECK(stub.reader.ReadDict(peer.MakeDict({})).empty());
}

CASE(codec_reads_requests_with_every_property) {
  Peer peer;
  Attached stub(peer);
  const std::string data("\1\2\3\4\5\6\7\0", 8);
  PeerRequest sent;
  sent.inputs = {{"odd", 11, {2, 1}, data}, {"separate", 5, {1}, data, true}, {"none", 11, {0, 3}, ""}};
  sent.outputs = {"B", "A", "B"};
  sent.id = "seven";
  sent.parameters = R"({"p": 1})";
  const auto requests = stub.reader.ReadRequests(peer.MakeBatch({sent, PeerRequest{}}));
  CHECK_EQ(requests.size(), 2u);
  const values::Request& request = requests[0];
  CHECK_EQ(request.id, "seven");
  CHECK_EQ(std::get<std::uint64_t>(request.correlation_id), 77u);
  CHECK_EQ(request.flags, 3u);
  CHECK_EQ(request.timeout_us, 1500000u);
  CHECK_EQ(request.parameters, sent.parameters);
  CHECK_EQ(request.model_name, "model");
  CHECK_EQ(request.model_version, 1);
  CHECK((request.requested_outputs == std::set<std::string>{"A", "B"}));
  CHECK_EQ(request.inputs.size(), 3u);
  CHECK_EQ(request.inputs[0].name, "odd");
  CHECK(request.inputs[0].dtype == values::DataType::kFp32);
  CHECK((request.inputs[0].dims == std::vector<std::int64_t>{2, 1}));
  CHECK(BytesOf(request.inputs[0]) == data);
  CHECK(BytesOf(request.inputs[1]) == data);
  CHECK_EQ(request.inputs[2].byte_size, 0u);
  CHECK((request.inputs[2].dims == std::vector<std::int64_t>{0, 3}));
  CHECK(requests[1].inputs.empty() && requests[1].requested_outputs.empty());
}

CASE(codec_keeps_only_a_tensors_memory_alive) {
  Peer peer;
  Attached stub(peer);
  const std::uint64_t before = peer.region.FreeBytes();
  PeerRequest sent;
  sent.inputs = {{"in", 6, {100}, std::string(100, 'x')},
                 {"separate", 6, {100}, std::string(100, 'y'), true}};
  auto requests = stub.reader.ReadRequests(peer.MakeBatch({sent}));
  peer.Drop();
  CHECK(peer.region.FreeBytes() < before);
  CHECK(BytesOf(requests[0].inputs[0]) == std::string(100, 'x'));
  CHECK(BytesOf(requests[0].inputs[1]) == std::string(100, 'y'));
  requests.clear();
  CHECK_EQ(peer.region.FreeBytes(), before);
}

CASE(codec_writes_what_the_server_reads) {
  Peer peer;
  Attached stub(peer);
  const std::uint64_t before = peer.region.FreeBytes();
  {
    values::EpochWriter<kRelease> writer(stub.region);
    writer.Finish();  // the peer reads each record as soon as it is written
    const std::string data("\0\1\2\3\4\5", 6);
    for (const std::string name : {"n", "na", "nam", "a longer name"}) {
      const auto read = peer.ReadTensor(writer.WriteTensor(TensorOf(name, {2, 3}, data)));
      CHECK_EQ(read.name, name);
      CHECK_EQ(read.dtype, 6);
      CHECK((read.dims == std::vector<std::int64_t>{2, 3}));
      CHECK(read.bytes == data);
    }
    values::Tensor empty;
    empty.name = "empty";
    empty.dims = {0};
    CHECK_EQ(peer.ReadTensor(writer.WriteTensor(empty)).bytes.size(), 0u);
    const std::string one("x");
    CHECK(peer.ReadTensor(writer.WriteTensor(TensorOf("scalar", {}, one))).dims.empty());

    values::Response response;
    response.outputs = {TensorOf("out", {6}, data), TensorOf("other", {1}, one)};
    const auto good = peer.ReadResponse(writer.WriteResponse(response));
    CHECK_EQ(good.outputs.size(), 2u);
    CHECK_EQ(good.outputs[1].bytes, "x");
    CHECK(!good.error);
    response.error = values::Error{"gone", values::ErrorCode::kNotFound};
    const auto bad = peer.ReadResponse(writer.WriteResponse(response));
    CHECK_EQ(bad.error.value_or(""), "gone");
    CHECK_EQ(bad.code, 2);
    CHECK(bad.outputs.empty());
  }
  CHECK_EQ(peer.region.FreeBytes(), before);
}

// What is large is copied when the region is unlocked again, before the server hears of it.
CASE(codec_copies_large_tensors_at_the_end) {
  Peer peer;
  Attached stub(peer);
  const std::string data(1 << 17, 'x');
  values::EpochWriter<kRelease> writer(stub.region);
  const auto written = writer.WriteTensor(TensorOf("large", {1 << 17}, data));
  writer.Finish();
  CHECK(peer.ReadTensor(written).bytes == data);
}

CASE(codec_rejects_counts_and_lengths_beyond_the_region) {
  Peer peer;
  Attached stub(peer);
  PeerRequest sent;
  sent.inputs = {{"in", 6, {4}, "abcd"}};
  const auto batch = [&] { return peer.MakeBatch({sent}); };
  const auto request_of = [&](envpack::test::Handle handle) {
    return *peer.region.As<envpack::test::Handle>(handle, sizeof(records::RequestBatch<kRelease>));
  };
  const auto tensor_of = [&](envpack::test::Handle handle) {
    return *peer.region.As<envpack::test::Handle>(request_of(handle), sizeof(records::Request<kRelease>));
  };
  auto handle = batch();
  peer.region.As<records::RequestBatch<kRelease>>(handle)->batch_size = UINT32_MAX;
  THROWN(CorruptRegion, stub.reader.ReadRequests(handle));
  handle = batch();
  peer.region.As<records::Request<kRelease>>(request_of(handle))->input_count = UINT32_MAX;
  THROWN(CorruptRegion, stub.reader.ReadRequests(handle));
  for (const std::uint64_t count : {std::uint64_t{1} << 40, std::uint64_t{1} << 61, UINT64_MAX}) {
    handle = batch();
    peer.region.As<records::Tensor>(tensor_of(handle))->dims_count = count;
    THROWN(CorruptRegion, stub.reader.ReadRequests(handle));
    handle = batch();
    std::memcpy(peer.region.At(tensor_of(handle), sizeof(records::Tensor) + 8 + 8), &count,
                sizeof(count));  // name
    THROWN(CorruptRegion, stub.reader.ReadRequests(handle));
    handle = batch();
    std::memcpy(peer.region.At(tensor_of(handle), sizeof(records::Tensor) + 8 + 16 + 2 + 40), &count,
                sizeof(count));
    THROWN(CorruptRegion, stub.reader.ReadRequests(handle));
    const auto text = peer.MakeString("text");
    peer.region.As<records::String>(text)->length = count;
    THROWN(CorruptRegion, stub.reader.ReadString(text));
  }
  handle = batch();
  peer.region.As<records::Request<kRelease>>(request_of(handle))->parameters = 1 << 30;
  THROWN(CorruptRegion, stub.reader.ReadRequests(handle));
  const auto dict = peer.MakeDict({{"a", "b"}});
  peer.region.As<records::Dict>(dict)->length = UINT32_MAX;
  THROWN(CorruptRegion, stub.reader.ReadDict(dict));
}
