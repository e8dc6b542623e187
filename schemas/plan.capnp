# Model: a plan (`runtime/plan.hpp`): which strided copies bring every target byte, from which
# source. A message holds one `Plan` as its root, in canonical form: one segment, no segment table,
# equal values in equal bytes. A message for one rollout shard may hold that shard's part alone; the
# digest is the whole plan's nevertheless.
#
# Ordering: sources by shard, parts by target, copies by target region and offset, unused by name.
# Copies refer to sources by index. Fields are numbered for ever: a change adds fields at the end.
# Numbers of dimension 0 come before those of dimension 1 and so on, because canonical form drops
# the words that are zero at the end of every element of a list: copies of one dimension take 56
# bytes, of two 80, of four 128. No element of a list is all zero (`manifest.capnp` says why).
#
# Lifetime: a message is immutable. A reader may use it in place for as long as its bytes live;
# nothing in it points outside it. Every number comes from a peer and is checked when it is read.

@0xd2c1f7a94b6e8035;

using Cxx = import "/capnp/c++.capnp";
using Manifest = import "manifest.capnp";
$Cxx.namespace("weir::schemas");

struct Plan {
  digestHigh @0 :UInt64;
  digestLow @1 :UInt64;
  sources @2 :List(PlanSource);
  parts @3 :List(PlanPart);
  unused @4 :List(Text);  # Names of source tensors that nobody needs.
}

struct PlanSource {
  shard @0 :Manifest.Shard;
  regions @1 :List(Manifest.Region);
  slots @2 :UInt32 = 1;  # The regions are this many sets of equal shape; copies name the first.
}

struct PlanPart {
  target @0 :Manifest.Shard;
  copies @1 :List(Copy);
}

# One strided copy in normal form. Extents count elements, offsets and strides count bytes.
# Dimensions from `rank` on are zero.
struct Copy {
  source @0 :UInt32;  # Index into the plan's sources, from 0.
  sourceRegion @1 :UInt32;  # Index into that source's regions, from 0, of slot 0.
  targetRegion @2 :UInt32;  # Index into the target's regions, counted from 1.
  sourceType @3 :UInt8;  # As `ElementType` counts.
  targetType @4 :UInt8;
  rank @5 :UInt8;  # How many of the dimensions below count.
  sourceOffset @6 :UInt64;
  targetOffset @7 :UInt64;
  extent0 @8 :Int64;
  sourceStride0 @9 :Int64;
  targetStride0 @10 :Int64;
  extent1 @11 :Int64;
  sourceStride1 @12 :Int64;
  targetStride1 @13 :Int64;
  extent2 @14 :Int64;
  sourceStride2 @15 :Int64;
  targetStride2 @16 :Int64;
  extent3 @17 :Int64;
  sourceStride3 @18 :Int64;
  targetStride3 @19 :Int64;
}
