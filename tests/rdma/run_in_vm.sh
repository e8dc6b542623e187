#!/usr/bin/env bash
# usage: run_in_vm.sh COMMAND [ARGUMENT...]
#
# Runs COMMAND as root in a qemu virtual machine (software emulation: no KVM, no privileges) whose
# kernel, Debian's own, has Soft-RoCE (rdma_rxe): verbs and librdmacm meet a real driver on a host
# without RDMA. The machine sees the host's files at the same paths, with the caller's environment
# and folder; paths are without spaces. What COMMAND writes is dropped, save under $WEIR_VM_OUT.
# Its output (print little: the console moves 60 kB/s) and its status become this script's; 124 says
# that time ran out, 125 that the machine did not come up, 126 that it can't be had here, and why.
#
# In it are two cables: eth0 (10.77.0.1, rxe0) to eth1 (10.77.0.2, rxe1), and eth2 (10.78.0.1, rxe2)
# to eth3 (10.78.0.2, rxe3).
# Environment: WEIR_VM_OUT, WEIR_VM_SECONDS (600), WEIR_VM_MEMORY (2G), WEIR_VM_CPUS (2).
set -euo pipefail
if [[ $# -eq 0 ]]; then
  sed -n '2,/^set/s/^# \?//p' "$0" >&2
  exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# In the order to load them: the host's files by virtio and 9p; the cables; RDMA.
modules=(
  virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci netfs fscache 9pnet
  9pnet_virtio 9p overlay veth crc32_generic ip6_udp_tunnel udp_tunnel configfs ib_core ib_uverbs
  iw_cm ib_cm rdma_cm rdma_ucm rdma_rxe)

cannot() {
  echo "RDMA MACHINE NOT TO BE HAD: $*" >&2
  exit 126
}

for program in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static ip:iproute2 xz:xz-utils; do
  command -v "${program%:*}" >/dev/null ||
    cannot "${program%:*} is missing: install ${program#*:}, or run ./dev setup"
done
run=$(mktemp -d)
caches=${XDG_CACHE_HOME:-$HOME/.cache}/weir/rdma-vm

# Prints the name of the newest kernel's package. The "cloud" kernel has neither rxe nor 9p.
kernel_package() {
  apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }'
}

# Unpacks the kernel into the present folder without installing it.
unpack_kernel() {
  local package=$1 at
  apt-get -qq -o APT::Sandbox::User=root download "$package" >&2
  dpkg-deb --fsys-tarfile "$package"_*.deb |
    tar -x --wildcards -T <(
      printf '%s\n' './boot/vmlinuz-*'
      printf '*/%s.ko\n' "${modules[@]}"
    )
  # A bzImage unpacks itself, slowly when emulated; qemu boots the ELF kernel within it as well.
  at=$(LC_ALL=C grep -abPo '\xFD7zXZ\x00' boot/vmlinuz-* | head -n 1 | cut -d: -f1)
  xz -dc --single-stream < <(tail -c +$((at + 1)) boot/vmlinuz-*) >vmlinux
  find lib -name '*.ko' -exec mv -t . {} +
  rm -rf boot lib ./*.deb
}

package=$(kernel_package)
kernel=$caches/$package-$(cksum <<<"${modules[*]}" | cut -d' ' -f1)
making=$kernel.$$
trap 'rm -rf "$run" "$making"' EXIT
if [[ -z $package || ! -e $kernel ]]; then
  if [[ -z $package ]]; then
    # Without the lists of packages, an earlier kernel does as well.
    kernel=$(find "$caches" -maxdepth 1 -name 'linux-image-*' 2>/dev/null | head -n 1)
    [[ -n $kernel ]] || cannot "apt knows no package linux-image-amd64: needs Debian's kernel," \
      "so run apt-get update, or copy $caches from a Debian machine"
  else
    mkdir -p "$making"
    (cd "$making" && unpack_kernel "$package") ||
      cannot "the package $package can't be fetched or unpacked: run apt-get update"
    mv -T "$making" "$kernel" 2>/dev/null || [[ -e $kernel ]] # a run beside this one may be first
  fi
fi

# The first file system holds busybox, the modules and vm_init.sh; all else is the host's.
mkdir "$run/initrd"
touch "$run/console" "$run/status"
number=10
for module in "${modules[@]}"; do
  cp "$kernel/$module.ko" "$run/initrd/$((number++))-$module.ko"
done
cp "$(command -v busybox)" "$run/initrd/busybox"
install -m 755 "$here/vm_init.sh" "$run/initrd/init"
(cd "$run/initrd" && find . | busybox cpio -o -H newc >../initrd.cpio 2>/dev/null)
{
  export -p
  printf 'cd %q\n' "$PWD"
  printf '%q ' "$@"
} >"$run/command"
out=$(readlink -e "${WEIR_VM_OUT:-$run}")

share=security_model=none,multidevs=remap
status=0
# Without erms, for the kernel would copy with "rep movsb", which qemu emulates byte by byte.
timeout --foreground "${WEIR_VM_SECONDS:-600}" qemu-system-x86_64 -M pc \
  -accel tcg,thread=multi -cpu max,-erms -smp "${WEIR_VM_CPUS:-2}" -m "${WEIR_VM_MEMORY:-2G}" \
  -nodefaults -no-user-config -display none -no-reboot \
  -kernel "$kernel/vmlinux" -initrd "$run/initrd.cpio" \
  -append "console=ttyS1 quiet panic=-1 mitigations=off RUN=$run OUT=$out" \
  -fsdev "local,id=root,path=/,readonly=on,$share" \
  -device virtio-9p-pci,fsdev=root,mount_tag=root \
  -fsdev "local,id=out,path=$out,$share" -device virtio-9p-pci,fsdev=out,mount_tag=out \
  -serial stdio -serial "file:$run/console" -serial "file:$run/status" </dev/null || status=$?
grep -v 'reboot: Power down' "$run/console" >&2 || true # what the kernel complained of
if [[ $status -eq 124 ]]; then exit 124; fi
status=$(tr -dc 0-9 <"$run/status")
exit "${status:-125}"
