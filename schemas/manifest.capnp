# Model: one shard's manifest (`runtime/manifest.hpp`): which tensors it holds a part of, and where
# each part lies in its memory. A message holds one `Manifest` as its root, in canonical form: one
# segment, no segment table, equal values in equal bytes.
#
# Ordering: `tensors`, `regions` and `pieces` keep their order, since pieces refer to the first two
# by index. Fields are numbered for ever: a change adds fields at the end. Numbers that belong to
# dimension 0 come before those of dimension 1 and so on, because canonical form drops the words
# that are zero at the end of every element of a list: a manifest of matrices pays for two
# dimensions (64 bytes a piece), one of vectors for one (40), and only rank 4 pays the full 112.
# An element that were all zero would take no bytes, and a short message could declare millions of
# them; so each struct that is listed has a field that a good message never leaves zero.
#
# Lifetime: a message is immutable. A reader may use it in place for as long as its bytes live;
# nothing in it points outside it. Every number comes from a peer and is checked when it is read.

@0xb4f0a5d0c5e8d3a1;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("weir::schemas");

struct Manifest {
  shard @0 :Shard;
  replicaRanks @1 :UInt32;
  inventoryCount @2 :UInt64;
  inventoryHigh @3 :UInt64;  # The digest over names, shapes and kinds of the whole model.
  inventoryLow @4 :UInt64;
  tensors @5 :List(Tensor);
  aliases @6 :List(Alias);
  regions @7 :List(Region);
  pieces @8 :List(Piece);
  slots @9 :UInt32 = 1;  # The regions are this many sets of equal shape; pieces lie in the first.
  encodings @10 :List(Encoding);
}

struct Shard {
  side @0 :UInt8;  # As `Side` counts.
  replica @1 :UInt32;
  rank @2 :UInt32;
}

struct Tensor {
  name @0 :Text;
  type @1 :UInt8;  # As `ElementType` counts.
  kind @2 :UInt8;  # As `TensorKind` counts.
  rank @3 :UInt8;  # How many of the extents below count; the others are zero.
  extent0 @4 :Int64;
  extent1 @5 :Int64;
  extent2 @6 :Int64;
  extent3 @7 :Int64;
  encoding @8 :UInt32;  # 0: none; else one of the manifest's, counted from 1.
}

struct Encoding {
  kind @0 :UInt8;  # As `Encoding::Kind` counts, but from 1.
  powerOfTwo @1 :Bool;
  rank @2 :UInt8;  # How many of the blocks' extents below count; the others are zero.
  block0 @3 :Int64;
  block1 @4 :Int64;
  block2 @5 :Int64;
  block3 @6 :Int64;
  scalesSuffix @7 :Text;
}

struct Alias {
  name @0 :Text;
  of @1 :Text;
}

struct Region {
  kind @0 :UInt8;  # As `RegionKind` counts, but from 1.
  bytes @1 :UInt64;
  tickets @2 :List(Ticket);
}

struct Ticket {
  transport @0 :Text;
  bytes @1 :Data;
}

# A box of a tensor of the manifest, of that tensor's rank, and where it lies. Start and extent
# count elements, offset and strides count bytes. Dimensions that the tensor lacks are zero.
struct Piece {
  tensor @0 :UInt32;  # Index into the manifest's tensors, from 0.
  region @1 :UInt32;  # Index into the manifest's regions, counted from 1.
  offset @2 :UInt64;
  start0 @3 :Int64;
  extent0 @4 :Int64;
  stride0 @5 :Int64;
  start1 @6 :Int64;
  extent1 @7 :Int64;
  stride1 @8 :Int64;
  start2 @9 :Int64;
  extent2 @10 :Int64;
  stride2 @11 :Int64;
  start3 @12 :Int64;
  extent3 @13 :Int64;
  stride3 @14 :Int64;
}
