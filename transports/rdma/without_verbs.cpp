// Stands in for the transport in builds without libibverbs and librdmacm.

#include "transports/rdma/rdma_devices.hpp"
#include "transports/rdma/rdma_transport.hpp"

namespace weir {
namespace {

tl::unexpected<Error> left_out() {
  return failure(ErrorCode::refused,
                 "this build of weir has no RDMA: install libibverbs-dev and librdmacm-dev, and "
                 "configure and build it again");
}

}  // namespace

Result<std::unique_ptr<Transport>> make_rdma_transport(const RdmaOptions&) {
  return left_out();
}

Result<std::vector<RdmaDevice>> rdma_devices() {
  return left_out();
}

}  // namespace weir
