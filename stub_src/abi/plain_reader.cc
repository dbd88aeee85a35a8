#include "abi/plain_reader.h"

#include <limits>

#include "abi/bytes.h"

namespace envpack::abi {

std::size_t PlainReader::CheckedProduct(std::uint64_t count, std::size_t size) {
  if (count > std::numeric_limits<std::size_t>::max() / 2 / size) {
    throw shm::CorruptRegion("a record claims " + std::to_string(count) + " entries");
  }
  return static_cast<std::size_t>(count) * size;
}

std::vector<Handle> PlainReader::ReadHandles(const shm::Block& block, std::size_t offset,
                                             std::uint64_t count) {
  const std::size_t bytes = CheckedProduct(count, sizeof(Handle));
  const char* first = block.At(offset, bytes);
  std::vector<Handle> handles(count);
  Copy(handles.data(), first, bytes);
  return handles;
}

std::string PlainReader::ReadString(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<records::String>();
  const shm::Block data = region_.Load(record.data);
  return {data.At(0, record.length), record.length};
}

std::string PlainReader::ReadInlineString(const shm::Block& block, std::size_t& offset) {
  const auto record = ReadUnaligned<records::String>(block, offset);
  const std::size_t at = offset + sizeof(record);
  std::string text(block.At(at, record.length), record.length);
  offset = at + record.length;
  return text;
}

std::map<std::string, std::string> PlainReader::ReadDict(Handle handle) const {
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

CorrelationId PlainReader::ReadCorrelationId(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<records::CorrelationId>();
  if (record.type == records::kCorrelationIdIsText) return ReadString(record.text);
  return record.number;
}

Trace PlainReader::ReadTrace(Handle handle) const {
  if (handle == 0) return {};
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<records::Trace>();
  return {ReadString(record.context), record.server_trace};
}

std::string PlainReader::ErrorText(bool is_set, Handle text, const char* otherwise) const {
  return is_set ? ReadString(text) : std::string(otherwise);
}

}  // namespace envpack::abi
