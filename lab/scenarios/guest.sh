# Sourced by each scenario's script in the guest.
say() { echo "== $(cut -d' ' -f1 /proc/uptime) $*"; }
# irqs DEVICE prints the device's queue vectors, one IRQ a line, in queue order, receive first.
irqs() { awk -v d="$1" '$NF ~ "^" d "-(rx|TxRx|rxtx)-?[0-9]+$" || $NF ~ "^virtio[0-9]+-input[.][0-9]+$" {sub(":","",$1); print $1}' /proc/interrupts; }
# pin LIST IRQ… sets the wanted CPUs of vectors.
pin() { local l=$1 i; shift; for i; do echo "$l" >"/proc/irq/$i/smp_affinity_list"; done; }
# rx_packets DEVICE
rx_packets() { cat "/sys/class/net/$1/statistics/rx_packets"; }
# flowing DEVICE waits until traffic arrives.
flowing() { local a n=100; a=$(rx_packets "$1"); while [ $(($(rx_packets "$1") - a)) -lt 50 ]; do n=$((n-1)); [ $n -gt 0 ] || { echo "no traffic arrives on $1"; return 1; }; usleep 100000; done; }
# hottest DEVICE prints the receive queue that got most of the packets since the last call.
hottest() { ethtool -S "$1" | sed -n 's/^ *rx_*\(queue_\)*\([0-9][0-9]*\)_packets: \([0-9]*\)$/\2 \3/p' >/tmp/queues.now
  [ -e /tmp/queues.then ] || sed 's/ .*/ 0/' /tmp/queues.now >/tmp/queues.then
  paste /tmp/queues.then /tmp/queues.now | awk '{d=$4-$2; if (d>=m) {m=d; q=$1}} END {print q}'; mv /tmp/queues.now /tmp/queues.then; }
# tool NAME FILE ARG… runs rxsteer NAME with its JSON in FILE.json; the status goes to FILE.rc, errors to FILE.err.
tool() { local n=$1 f=$2; shift 2; rxsteer "$n" -o json "$@" >"/share/$f.json" 2>"/share/$f.err" </dev/null; echo $? >"/share/$f.rc"; [ -s "/share/$f.json" ] || rm -f "/share/$f.json"; }
