cd /share
[ "$KNOBS" = false ] || { rxknobtest -nic eth0 -test.run EveryKnobOfANIC -test.v >knobs.log 2>&1; echo $? >knobs.rc; }
[ -z "$RXSTEER_NIC" ] || { rxhosttest -test.run OnTheDriver -test.v >scripts.log 2>&1; echo $? >scripts.rc; }
# What a NIC refuses stays as it is: the comparison holds either way.
try() { "$@" >>/tmp/set.log 2>&1 || echo "refused: $*"; }
write() { echo "$1" >"$2" || echo "refused: $2"; }
try ethtool -X eth0 weight 1 2
try ethtool -N eth0 rx-flow-hash udp4 sdfn
try ethtool -C eth0 rx-usecs 55
try ethtool -G eth0 rx 512
try ethtool -K eth0 gro off
write 6 /sys/class/net/eth0/queues/rx-0/rps_cpus
[ -e /sys/class/net/eth0/queues/tx-1 ] && write 5 /sys/class/net/eth0/queues/tx-1/xps_cpus
n=100; while [ "$(cat /sys/class/net/eth0/carrier)" != 1 ] && [ $n -gt 0 ]; do usleep 100000; n=$((n-1)); done
i=0
for irq in $(awk '$NF ~ /^(eth0|virtio1)/ {sub(":","",$1); print $1}' /proc/interrupts); do
  i=$((i+1)); [ $((i % 2)) = 1 ] || echo $((i % 4)) 2>/dev/null >/proc/irq/$irq/smp_affinity_list
done
host "rxtraffic send --to 10.77.0.2:9000 --flows 32 --rate 500 --for 1s >/dev/null"
sleep 1
cd /share
rxsteer status -o json eth0 >status.json 2>status.err || cat status.err
for o in i l g c x k; do ethtool -$o eth0 >ethtool-$o 2>/tmp/err; done
for f in udp4 tcp4 udp6 tcp6; do ethtool -n eth0 rx-flow-hash $f >ethtool-n-$f 2>/tmp/err; done
cat /sys/class/net/eth0/mtu >mtu
cat /sys/class/net/eth0/device/numa_node >node 2>/dev/null || cat /sys/class/net/eth0/device/../numa_node >node
for q in /sys/class/net/eth0/queues/rx-*; do echo "${q##*-} $(cat $q/rps_cpus)"; done >rps
for q in /sys/class/net/eth0/queues/tx-*; do echo "${q##*-} $(cat $q/xps_cpus 2>/dev/null)"; done >xps
awk '$1 ~ /^[0-9]+:$/ {sub(":","",$1); print $1, $NF}' /proc/interrupts | while read -r irq action; do
  [ -e /proc/irq/$irq/smp_affinity_list ] && echo "$irq $action $(cat /proc/irq/$irq/smp_affinity_list) $(cat /proc/irq/$irq/effective_affinity_list)"
done | grep -E ' (eth0|virtio1)' >irqs
exit 0
