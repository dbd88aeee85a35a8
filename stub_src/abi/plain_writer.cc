#include "abi/plain_writer.h"

#include <variant>
#include <vector>

#include "abi/bytes.h"

namespace envpack::abi {

PlainWriter::~PlainWriter() {
  const shm::Hold hold(region_);
  blocks_.clear();
}

const shm::Block& PlainWriter::Make(std::size_t size) {
  blocks_.push_back(region_.Create(size));
  return blocks_.back();
}

const shm::Block& PlainWriter::MakeAligned(std::size_t size) {
  blocks_.push_back(region_.CreateAligned(size));
  return blocks_.back();
}

Handle PlainWriter::WriteString(std::string_view text) {
  const shm::Block& data = Make(text.size());
  Copy(data.At(0, text.size()), text.data(), text.size());
  return Put(records::String{data.handle(), text.size()}).handle();
}

Handle PlainWriter::WriteDict(const std::map<std::string, std::string>& dict) {
  std::vector<records::Pair> pairs;
  for (const auto& [key, value] : dict) pairs.push_back({WriteString(key), WriteString(value)});
  const shm::Block& values = Make(pairs.size() * sizeof(records::Pair));
  Copy(values.At(0, pairs.size() * sizeof(records::Pair)), pairs.data(),
       pairs.size() * sizeof(records::Pair));
  return Put(records::Dict{static_cast<std::uint32_t>(pairs.size()), values.handle()}).handle();
}

Handle PlainWriter::WriteCorrelationId(const CorrelationId& id) {
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

Handle PlainWriter::WriteTrace(const Trace& trace) {
  return Put(records::Trace{WriteString(trace.context), trace.server_trace}).handle();
}

}  // namespace envpack::abi
