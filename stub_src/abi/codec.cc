#include "abi/codec.h"

#include <limits>
#include <variant>

#include "base/output.h"

namespace envpack::abi {

namespace {

constexpr std::size_t kCopiedAtOnce = 1 << 16;  // some microseconds
constexpr std::size_t kMostWithoutRoom = 2000;  // bytes of a text

}  // namespace

std::size_t Reader::CheckedProduct(std::uint64_t count, std::size_t size) {
  if (count > std::numeric_limits<std::size_t>::max() / 2 / size) {
    throw shm::CorruptRegion("a record claims " + std::to_string(count) + " entries");
  }
  return static_cast<std::size_t>(count) * size;
}

std::vector<Handle> Reader::ReadHandles(const shm::Block& block, std::size_t offset, std::uint64_t count) {
  const std::size_t bytes = CheckedProduct(count, sizeof(Handle));
  const char* first = block.At(offset, bytes);
  std::vector<Handle> handles(count);
  shm::CopyBytes(handles.data(), first, bytes);
  return handles;
}

std::string Reader::ReadString(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<records::String>();
  const shm::Block data = region_.Load(record.data);
  return {data.At(0, record.length), record.length};
}

std::string Reader::ReadInlineString(const shm::Block& block, std::size_t& offset) {
  const auto record = block.Read<records::String>(offset);
  const std::size_t at = offset + sizeof(record);
  std::string text(block.At(at, record.length), record.length);
  offset = at + record.length;
  return text;
}

std::map<std::string, std::string> Reader::ReadDict(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<records::Dict>();
  const shm::Block pairs = region_.Load(record.values);
  std::map<std::string, std::string> dict;
  for (std::uint32_t i = 0; i < record.length; ++i) {
    const auto pair = *pairs.As<records::Pair>(i * sizeof(records::Pair));
    dict.emplace(ReadString(pair.key), ReadString(pair.value));
  }
  return dict;
}

CorrelationId Reader::ReadCorrelationId(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<records::CorrelationId>();
  if (record.type == records::kCorrelationIdIsText) return ReadString(record.text);
  return record.number;
}

Trace Reader::ReadTrace(Handle handle) const {
  if (handle == 0) return {};
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<records::Trace>();
  return {ReadString(record.context), record.server_trace};
}

std::string Reader::ErrorText(bool is_set, Handle text, const char* otherwise) const {
  return is_set ? ReadString(text) : std::string(otherwise);
}

Writer::~Writer() {
  lock_.reset();
  const shm::ReleaseTogether together;
  blocks_.clear();
}

void Writer::Finish() {
  lock_.reset();
  for (const Copy& copy : copies_) shm::CopyBytes(copy.to, copy.from, copy.size);
  copies_.clear();
}

void Writer::Fill(char* to, const void* from, std::size_t size) {
  if (!lock_ || size <= kCopiedAtOnce) {
    shm::CopyBytes(to, from, size);
  } else {
    copies_.push_back({to, from, size});
  }
}

const shm::Block& Writer::Make(std::size_t size, std::size_t alignment) {
  blocks_.push_back(region_.Create(size, alignment));
  return blocks_.back();
}

Handle Writer::WriteString(std::string_view text) {
  const shm::Block& data = Make(text.size());
  shm::CopyBytes(data.At(0, text.size()), text.data(), text.size());
  return Put(records::String{data.handle(), text.size()}).handle();
}

Handle Writer::WriteReason(const std::string& text) {
  try {
    return WriteString(text);
  } catch (const shm::RegionFull& full) {
    return WriteString(Beginning(text, kMostWithoutRoom) + "\n" + full.what());
  }
}

Handle Writer::WriteDict(const std::map<std::string, std::string>& dict) {
  std::vector<records::Pair> pairs;
  for (const auto& [key, value] : dict) pairs.push_back({WriteString(key), WriteString(value)});
  const shm::Block& values = Make(pairs.size() * sizeof(records::Pair));
  shm::CopyBytes(values.At(0, pairs.size() * sizeof(records::Pair)), pairs.data(),
                 pairs.size() * sizeof(records::Pair));
  return Put(records::Dict{static_cast<std::uint32_t>(pairs.size()), values.handle()}).handle();
}

Handle Writer::WriteCorrelationId(const CorrelationId& id) {
  records::CorrelationId record{};
  const auto* text = std::get_if<std::string>(&id);
  record.text = WriteString(text != nullptr ? *text : "");
  if (text != nullptr) {
    record.type = records::kCorrelationIdIsText;
  } else {
    record.number = std::get<std::uint64_t>(id);
  }
  return Put(record).handle();
}

Handle Writer::WriteTrace(const Trace& trace) {
  return Put(records::Trace{WriteString(trace.context), trace.server_trace}).handle();
}

}  // namespace envpack::abi
