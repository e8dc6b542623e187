#!/busybox sh
# Process 1 of the virtual machine that run_in_vm.sh boots. RUN and OUT come from the kernel's
# command line.
# shellcheck shell=dash disable=SC3040 # busybox knows pipefail
export PATH=/bin:/usr/bin:/sbin:/usr/sbin
/busybox mkdir -p /proc /dev /bin /host /rw /new && /busybox --install -s /bin
mount -t devtmpfs dev /dev
exec </dev/null >/dev/ttyS0 2>&1
stty -F /dev/ttyS0 -onlcr
status=125
trap 'echo $status >/dev/ttyS2; poweroff -f' EXIT
set -e
for module in /*.ko; do insmod "$module"; done

# The host's files, and on top of them a layer that forgets what is written.
options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o ro,cache=loose,$options root /host
mount -t tmpfs rw /rw
mkdir /rw/up /rw/work
mount -t overlay -o lowerdir=/host,upperdir=/rw/up,workdir=/rw/work root /new
cd /new
mount -t 9p -o $options out "./$OUT"
mount -t proc proc proc
mount -t sysfs sys sys
mount -t devtmpfs dev dev
mkdir -p dev/shm dev/pts
mount -t tmpfs shm dev/shm
mount -t devpts pts dev/pts

chroot . /bin/bash -e <<'CABLES'
ip link set lo up
for cable in 0 1; do
  near=eth$((2 * cable)) far=eth$((2 * cable + 1))
  ip link add "$near" mtu 9000 type veth peer name "$far" mtu 9000
  for end in 1 2; do
    number=$((2 * cable + end - 1))
    ip addr add "10.$((77 + cable)).0.$end/24" dev "eth$number"
    # Both ends are this machine's: without it, each drops what comes from the other's address.
    echo 1 >"/proc/sys/net/ipv4/conf/eth$number/accept_local"
    ip link set "eth$number" up
  done
done
for number in 0 1 2 3; do rdma link add "rxe$number" type rxe netdev "eth$number"; done
for number in 0 1 2 3; do
  port=/sys/class/infiniband/rxe$number/ports/1
  until grep -q ACTIVE "$port/state" && grep -q ffff:0a4 "$port/gids/1"; do sleep 0.1; done
done
CABLES

set +e
ulimit -l unlimited
set -o pipefail # the pipe hides the serial terminal from the command
chroot . /bin/bash "$RUN/command" 2>&1 | cat
status=$?
