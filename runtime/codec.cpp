#include "runtime/codec.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "runtime/assert.hpp"
#include "schemas/manifest.capnp.h"
#include "schemas/plan.capnp.h"

namespace weir {
namespace {

/// Elements of any one kind in a message, over all its lists: with the size, this bounds what a
/// message makes its reader allocate. Elements take a word at least.
constexpr std::uint64_t count_max = std::uint64_t{1} << 22;
/// The deepest path: root, sources, source, regions, region, tickets, ticket, its text.
constexpr int nesting_max = 8;

constexpr const char* sender_hint = ": its sender is broken or speaks another version";

tl::unexpected<Error> invalid(const std::string& what) {
  return failure(ErrorCode::invalid, "the message " + what + sender_hint);
}

/// Counts elements of one kind against the limit.
class Count {
 public:
  explicit Count(std::string_view kind) : kind_(kind) {}

  [[nodiscard]] bool add(std::uint64_t number) noexcept {
    count_ += number;
    return count_ <= count_max;
  }
  [[nodiscard]] tl::unexpected<Error> refusal() const {
    return failure(ErrorCode::refused, "the message holds more than " + std::to_string(count_max) +
                                           " " + std::string(kind_) +
                                           ": describe the model by fewer, larger ones");
  }

 private:
  std::string_view kind_;
  std::uint64_t count_ = 0;
};

/// Values of enumerations as the wire has them; the reader checks the range first.
template <class Enum>
std::uint8_t number_of(Enum value) noexcept {
  return static_cast<std::uint8_t>(value);
}

/// An index on the wire where zero must not be one.
std::uint32_t counted_from_one(std::uint32_t index) {
  WEIR_ASSERT(index < count_max);
  return index + 1;
}

std::string string_of(capnp::Text::Reader text) {
  return {text.begin(), text.size()};
}

/// With its size: converted implicitly, a string would end at its first zero byte.
capnp::Text::Reader text_of(const std::string& text) {
  return {text.c_str(), text.size()};
}

Dims dims_of(const std::array<std::int64_t, rank_max>& values, int rank) {
  return Dims(std::span(values).first(static_cast<std::size_t>(rank)));
}

unsigned size_of_list(std::size_t size) {
  WEIR_ASSERT(size <= count_max);
  return static_cast<unsigned>(size);
}

template <class Schema>
std::string canonical_bytes(typename Schema::Builder root) {
  const kj::Array<capnp::word> words = capnp::canonicalize(root.asReader());
  const auto bytes = words.asBytes();
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

/// Calls `read` with the root of the message in `bytes`. Cap'n Proto reports bad pointers by
/// exceptions while it reads: they end here.
template <class Schema, class Value>
Result<Value> decoded(std::span<const std::byte> bytes,
                      Result<Value> (*read)(typename Schema::Reader)) {
  if (bytes.size() > message_bytes_max) {
    return failure(ErrorCode::refused, "the message has " + std::to_string(bytes.size()) +
                                           " bytes, the limit is " +
                                           std::to_string(message_bytes_max) +
                                           ": send the parts that its receiver needs");
  }
  const std::size_t word_count = bytes.size() / sizeof(capnp::word);
  if (word_count == 0 || bytes.size() % sizeof(capnp::word) != 0) {
    return invalid("has " + std::to_string(bytes.size()) + " bytes, no whole number of words");
  }
  const auto* words = reinterpret_cast<const capnp::word*>(bytes.data());
  kj::Array<capnp::word> aligned;
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(capnp::word) != 0) {
    aligned = kj::heapArray<capnp::word>(word_count);
    std::memcpy(aligned.begin(), bytes.data(), bytes.size());
    words = aligned.begin();
  }
  // Everything is read once, so a message that makes us read more than it holds is hostile.
  const capnp::ReaderOptions options{2 * word_count + 64, nesting_max};
  const kj::ArrayPtr<const capnp::word> segment(words, word_count);
  try {
    capnp::SegmentArrayMessageReader message(kj::arrayPtr(&segment, 1), options);
    return read(message.getRoot<Schema>());
  } catch (const kj::Exception& exception) {
    // Its two limits, traversal and nesting, both name the type that sets them.
    if (std::strstr(exception.getDescription().cStr(), "ReaderOptions") != nullptr) {
      return failure(
          ErrorCode::refused,
          std::string("the message is nested too deeply or refers to itself") + sender_hint);
    }
    return invalid("is malformed");
  }
}

// Shards and regions, which both messages hold.

void write(schemas::Shard::Builder to, const ShardId& shard) {
  to.setSide(number_of(shard.side));
  to.setReplica(shard.replica);
  to.setRank(shard.rank);
}

Result<ShardId> read_shard(schemas::Shard::Reader from) {
  if (from.getSide() > number_of(Side::rollout)) return invalid("has an unknown side");
  return ShardId{static_cast<Side>(from.getSide()), from.getReplica(), from.getRank()};
}

void write(capnp::List<schemas::Region>::Builder to, const std::vector<RegionInfo>& regions) {
  for (unsigned i = 0; i < to.size(); ++i) {
    to[i].setKind(static_cast<std::uint8_t>(number_of(regions[i].kind) + 1));
    to[i].setBytes(regions[i].bytes);
    const auto& tickets = regions[i].tickets;
    auto list = to[i].initTickets(size_of_list(tickets.size()));
    for (unsigned j = 0; j < list.size(); ++j) {
      const auto* bytes = reinterpret_cast<const kj::byte*>(tickets[j].bytes.data());
      list[j].setTransport(text_of(tickets[j].transport));
      list[j].setBytes(kj::arrayPtr(bytes, tickets[j].bytes.size()));
    }
  }
}

/// Appends to `regions`; `count` runs over regions and tickets.
Result<void> read_regions(capnp::List<schemas::Region>::Reader from, Count& count,
                          std::vector<RegionInfo>& regions) {
  if (!count.add(from.size())) return count.refusal();
  regions.reserve(from.size());
  for (const auto region : from) {
    if (region.getKind() == 0 || region.getKind() - 1 > number_of(RegionKind::device)) {
      return invalid("has an unknown kind of region");
    }
    RegionInfo& info = regions.emplace_back();
    info.kind = static_cast<RegionKind>(region.getKind() - 1);
    info.bytes = region.getBytes();
    const auto tickets = region.getTickets();
    if (!count.add(tickets.size())) return count.refusal();
    info.tickets.reserve(tickets.size());
    for (const auto ticket : tickets) {
      const auto bytes = ticket.getBytes();
      info.tickets.push_back({string_of(ticket.getTransport()),
                              {reinterpret_cast<const char*>(bytes.begin()), bytes.size()}});
    }
  }
  return {};
}

// Manifests.

void write(schemas::Tensor::Builder to, const Tensor& tensor) {
  to.setName(text_of(tensor.name));
  to.setType(number_of(tensor.type));
  to.setKind(number_of(tensor.kind));
  to.setRank(static_cast<std::uint8_t>(tensor.shape.rank()));
  to.setExtent0(tensor.shape[0]);
  to.setExtent1(tensor.shape[1]);
  to.setExtent2(tensor.shape[2]);
  to.setExtent3(tensor.shape[3]);
  to.setEncoding(tensor.encoding);
}

void write(schemas::Encoding::Builder to, const Encoding& encoding) {
  to.setKind(static_cast<std::uint8_t>(number_of(encoding.kind) + 1));
  to.setPowerOfTwo(encoding.power_of_two);
  to.setRank(static_cast<std::uint8_t>(encoding.block.rank()));
  to.setBlock0(encoding.block[0]);
  to.setBlock1(encoding.block[1]);
  to.setBlock2(encoding.block[2]);
  to.setBlock3(encoding.block[3]);
  to.setScalesSuffix(text_of(encoding.scales_suffix));
}

void write(schemas::Piece::Builder to, const Piece& piece) {
  to.setTensor(piece.tensor);
  to.setRegion(counted_from_one(piece.region));
  to.setOffset(piece.offset);
  to.setStart0(piece.box.start[0]);
  to.setExtent0(piece.box.extent[0]);
  to.setStride0(piece.stride[0]);
  to.setStart1(piece.box.start[1]);
  to.setExtent1(piece.box.extent[1]);
  to.setStride1(piece.stride[1]);
  to.setStart2(piece.box.start[2]);
  to.setExtent2(piece.box.extent[2]);
  to.setStride2(piece.stride[2]);
  to.setStart3(piece.box.start[3]);
  to.setExtent3(piece.box.extent[3]);
  to.setStride3(piece.stride[3]);
}

Result<void> read_tensors(capnp::List<schemas::Tensor>::Reader from, Manifest& manifest) {
  Count count("tensors");
  if (!count.add(from.size())) return count.refusal();
  manifest.tensors.reserve(from.size());
  for (const auto tensor : from) {
    if (tensor.getType() >= element_type_count) return invalid("has an unknown element type");
    if (tensor.getKind() > number_of(TensorKind::buffer)) {
      return invalid("has an unknown kind of tensor");
    }
    if (tensor.getRank() > rank_max) return invalid("has a tensor of too many dimensions");
    manifest.tensors.push_back(
        {string_of(tensor.getName()), static_cast<ElementType>(tensor.getType()),
         dims_of(
             {tensor.getExtent0(), tensor.getExtent1(), tensor.getExtent2(), tensor.getExtent3()},
             tensor.getRank()),
         static_cast<TensorKind>(tensor.getKind()), tensor.getEncoding()});
  }
  return {};
}

Result<void> read_encodings(capnp::List<schemas::Encoding>::Reader from, Manifest& manifest) {
  if (from.size() > encodings_max) return invalid("has too many encodings");
  for (const auto encoding : from) {
    if (encoding.getKind() == 0 || encoding.getKind() - 1 > number_of(Encoding::Kind::scaled)) {
      return invalid("has an unknown kind of encoding");
    }
    if (encoding.getRank() > rank_max) return invalid("has an encoding of too many dimensions");
    manifest.encodings.push_back({static_cast<Encoding::Kind>(encoding.getKind() - 1),
                                  string_of(encoding.getScalesSuffix()),
                                  dims_of({encoding.getBlock0(), encoding.getBlock1(),
                                           encoding.getBlock2(), encoding.getBlock3()},
                                          encoding.getRank()),
                                  encoding.getPowerOfTwo()});
  }
  return {};
}

Result<void> read_pieces(capnp::List<schemas::Piece>::Reader from, Manifest& manifest) {
  Count count("pieces");
  if (!count.add(from.size())) return count.refusal();
  manifest.pieces.reserve(from.size());
  for (const auto piece : from) {
    if (piece.getTensor() >= manifest.tensors.size()) {
      return invalid("has a piece of a tensor that it does not list");
    }
    if (piece.getRegion() == 0) return invalid("has a piece in no region");
    const int rank = manifest.tensors[piece.getTensor()].shape.rank();
    Piece& read = manifest.pieces.emplace_back();
    read.tensor = piece.getTensor();
    read.region = piece.getRegion() - 1;
    read.offset = piece.getOffset();
    read.box.start =
        dims_of({piece.getStart0(), piece.getStart1(), piece.getStart2(), piece.getStart3()}, rank);
    read.box.extent = dims_of(
        {piece.getExtent0(), piece.getExtent1(), piece.getExtent2(), piece.getExtent3()}, rank);
    read.stride = dims_of(
        {piece.getStride0(), piece.getStride1(), piece.getStride2(), piece.getStride3()}, rank);
  }
  return {};
}

Result<Manifest> read_manifest(schemas::Manifest::Reader from) {
  Manifest manifest;
  const auto shard = read_shard(from.getShard());
  if (!shard) return failure(shard);
  manifest.shard = *shard;
  manifest.replica_ranks = from.getReplicaRanks();
  manifest.inventory = {from.getInventoryCount(),
                        {from.getInventoryHigh(), from.getInventoryLow()}};
  if (auto good = read_encodings(from.getEncodings(), manifest); !good) return failure(good);
  if (auto good = read_tensors(from.getTensors(), manifest); !good) return failure(good);
  Count alias_count("aliases");
  const auto aliases = from.getAliases();
  if (!alias_count.add(aliases.size())) return alias_count.refusal();
  manifest.aliases.reserve(aliases.size());
  for (const auto alias : aliases) {
    manifest.aliases.push_back({string_of(alias.getName()), string_of(alias.getOf())});
  }
  Count region_count("regions and tickets");
  if (auto good = read_regions(from.getRegions(), region_count, manifest.regions); !good) {
    return failure(good);
  }
  manifest.slots = from.getSlots();
  if (auto good = read_pieces(from.getPieces(), manifest); !good) return failure(good);
  if (auto good = check(manifest); !good) return failure(good);
  return manifest;
}

// Plans.

void write(schemas::Copy::Builder to, const Copy& copy) {
  to.setSource(copy.source);
  to.setSourceRegion(copy.source_region);
  to.setTargetRegion(counted_from_one(copy.target_region));
  to.setSourceType(number_of(copy.source_type));
  to.setTargetType(number_of(copy.target_type));
  to.setRank(static_cast<std::uint8_t>(copy.extent.rank()));
  to.setSourceOffset(copy.source_offset);
  to.setTargetOffset(copy.target_offset);
  to.setExtent0(copy.extent[0]);
  to.setSourceStride0(copy.source_stride[0]);
  to.setTargetStride0(copy.target_stride[0]);
  to.setExtent1(copy.extent[1]);
  to.setSourceStride1(copy.source_stride[1]);
  to.setTargetStride1(copy.target_stride[1]);
  to.setExtent2(copy.extent[2]);
  to.setSourceStride2(copy.source_stride[2]);
  to.setTargetStride2(copy.target_stride[2]);
  to.setExtent3(copy.extent[3]);
  to.setSourceStride3(copy.source_stride[3]);
  to.setTargetStride3(copy.target_stride[3]);
}

/// Whether all numbers are positive, and the bytes that the copy moves can be counted.
bool sound(const Copy& copy) {
  std::int64_t bytes = 8;
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    if (copy.extent[dim] <= 0 || copy.source_stride[dim] <= 0 || copy.target_stride[dim] <= 0 ||
        __builtin_mul_overflow(bytes, copy.extent[dim], &bytes)) {
      return false;
    }
  }
  return true;
}

Result<Copy> read_copy(schemas::Copy::Reader from, const std::vector<PlanSource>& sources) {
  if (from.getSource() >= sources.size() ||
      from.getSourceRegion() >= regions_per_slot(sources[from.getSource()].regions.size(),
                                                 sources[from.getSource()].slots)) {
    return invalid("has a copy from a source or region that it does not list");
  }
  if (from.getTargetRegion() == 0 || from.getTargetRegion() > count_max) {
    return invalid("has a copy to an impossible region");
  }
  if (from.getSourceType() >= element_type_count || from.getTargetType() >= element_type_count) {
    return invalid("has a copy of an unknown element type");
  }
  const int rank = from.getRank();
  if (rank > rank_max) return invalid("has a copy of too many dimensions");
  Copy copy;
  copy.source = from.getSource();
  copy.source_region = from.getSourceRegion();
  copy.target_region = from.getTargetRegion() - 1;
  copy.source_type = static_cast<ElementType>(from.getSourceType());
  copy.target_type = static_cast<ElementType>(from.getTargetType());
  copy.source_offset = from.getSourceOffset();
  copy.target_offset = from.getTargetOffset();
  copy.extent =
      dims_of({from.getExtent0(), from.getExtent1(), from.getExtent2(), from.getExtent3()}, rank);
  copy.source_stride = dims_of({from.getSourceStride0(), from.getSourceStride1(),
                                from.getSourceStride2(), from.getSourceStride3()},
                               rank);
  copy.target_stride = dims_of({from.getTargetStride0(), from.getTargetStride1(),
                                from.getTargetStride2(), from.getTargetStride3()},
                               rank);
  if (!sound(copy)) return invalid("has a copy whose extents or strides are not possible");
  return copy;
}

Result<void> read_parts(capnp::List<schemas::PlanPart>::Reader from, Plan& plan) {
  Count part_count("parts");
  Count copy_count("copies");
  if (!part_count.add(from.size())) return part_count.refusal();
  plan.parts.reserve(from.size());
  for (const auto part : from) {
    const auto target = read_shard(part.getTarget());
    if (!target) return failure(target);
    const auto copies = part.getCopies();
    if (!copy_count.add(copies.size())) return copy_count.refusal();
    std::vector<Copy> read;
    read.reserve(copies.size());
    for (const auto copy : copies) {
      auto one = read_copy(copy, plan.sources);
      if (!one) return failure(one);
      read.push_back(*one);
    }
    plan.parts.push_back({*target, std::move(read)});
  }
  return {};
}

Result<Plan> read_plan(schemas::Plan::Reader from) {
  Plan plan;
  plan.digest = {from.getDigestHigh(), from.getDigestLow()};
  Count source_count("sources");
  Count region_count("regions and tickets");
  const auto sources = from.getSources();
  if (!source_count.add(sources.size())) return source_count.refusal();
  plan.sources.reserve(sources.size());
  for (const auto source : sources) {
    const auto shard = read_shard(source.getShard());
    if (!shard) return failure(shard);
    PlanSource& read = plan.sources.emplace_back();
    read.shard = *shard;
    if (auto good = read_regions(source.getRegions(), region_count, read.regions); !good) {
      return failure(good);
    }
    read.slots = source.getSlots();
    if (read.slots == 0 || read.slots > slots_max || read.regions.size() % read.slots != 0) {
      return invalid("has a source whose regions do not make up its slots");
    }
  }
  if (auto good = read_parts(from.getParts(), plan); !good) return failure(good);
  Count unused_count("unused tensors");
  const auto unused = from.getUnused();
  if (!unused_count.add(unused.size())) return unused_count.refusal();
  plan.unused.reserve(unused.size());
  for (const auto name : unused) plan.unused.push_back(string_of(name));
  return plan;
}

}  // namespace

std::string encode(const Manifest& manifest) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schemas::Manifest>();
  write(root.initShard(), manifest.shard);
  root.setReplicaRanks(manifest.replica_ranks);
  root.setInventoryCount(manifest.inventory.tensor_count);
  root.setInventoryHigh(manifest.inventory.digest.high);
  root.setInventoryLow(manifest.inventory.digest.low);
  auto tensors = root.initTensors(size_of_list(manifest.tensors.size()));
  for (unsigned i = 0; i < tensors.size(); ++i) write(tensors[i], manifest.tensors[i]);
  auto encodings = root.initEncodings(size_of_list(manifest.encodings.size()));
  for (unsigned i = 0; i < encodings.size(); ++i) write(encodings[i], manifest.encodings[i]);
  auto aliases = root.initAliases(size_of_list(manifest.aliases.size()));
  for (unsigned i = 0; i < aliases.size(); ++i) {
    aliases[i].setName(text_of(manifest.aliases[i].name));
    aliases[i].setOf(text_of(manifest.aliases[i].of));
  }
  write(root.initRegions(size_of_list(manifest.regions.size())), manifest.regions);
  auto pieces = root.initPieces(size_of_list(manifest.pieces.size()));
  for (unsigned i = 0; i < pieces.size(); ++i) write(pieces[i], manifest.pieces[i]);
  root.setSlots(manifest.slots);
  return canonical_bytes<schemas::Manifest>(root);
}

Result<Manifest> decode_manifest(std::span<const std::byte> bytes) {
  return decoded<schemas::Manifest, Manifest>(bytes, read_manifest);
}

std::string encode(const Plan& plan) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schemas::Plan>();
  root.setDigestHigh(plan.digest.high);
  root.setDigestLow(plan.digest.low);
  auto sources = root.initSources(size_of_list(plan.sources.size()));
  for (unsigned i = 0; i < sources.size(); ++i) {
    write(sources[i].initShard(), plan.sources[i].shard);
    write(sources[i].initRegions(size_of_list(plan.sources[i].regions.size())),
          plan.sources[i].regions);
    sources[i].setSlots(plan.sources[i].slots);
  }
  auto parts = root.initParts(size_of_list(plan.parts.size()));
  for (unsigned i = 0; i < parts.size(); ++i) {
    write(parts[i].initTarget(), plan.parts[i].target);
    auto copies = parts[i].initCopies(size_of_list(plan.parts[i].copies.size()));
    for (unsigned j = 0; j < copies.size(); ++j) write(copies[j], plan.parts[i].copies[j]);
  }
  auto unused = root.initUnused(size_of_list(plan.unused.size()));
  for (unsigned i = 0; i < unused.size(); ++i) unused.set(i, text_of(plan.unused[i]));
  return canonical_bytes<schemas::Plan>(root);
}

Result<Plan> decode_plan(std::span<const std::byte> bytes) {
  return decoded<schemas::Plan, Plan>(bytes, read_plan);
}

}  // namespace weir
