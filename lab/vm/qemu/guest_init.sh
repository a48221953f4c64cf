#!/bin/busybox sh
# /init of a lab guest: mounts, NIC modules, addresses, then /share/job; then power off.
/bin/busybox --install -s /bin
mkdir -p /sbin /var; ln -s /bin/modprobe /sbin/modprobe; ln -s /run /var/run # the kernel's modprobe, ip-netns(8)'s folder
export PATH=/usr/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
mount -t bpf bpf /sys/fs/bpf; mount -t tracefs t /sys/kernel/tracing; mount -t debugfs d /sys/kernel/debug
mkdir -p /dev/pts; mount -t devpts devpts /dev/pts
for m in virtio_pci 9pnet_virtio 9p virtio_net igb vmxnet3 e1000e veth tun; do modprobe -q $m; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share || { echo "lab: no /share"; poweroff -f; }
ip link set lo up
ports=$(sed -n 's/.*lab.ports=\([0-9]*\).*/\1/p' /proc/cmdline); ports=${ports:-0}
queues=$(sed -n 's/.*lab.queues=\([0-9]*\).*/\1/p' /proc/cmdline)
p=0
while [ $p -lt "$ports" ]; do
  n=100; while [ ! -e /sys/class/net/eth$p ] && [ $n -gt 0 ]; do usleep 100000; n=$((n-1)); done
  ip link set eth$p up; ip addr add 10.77.$p.2/24 dev eth$p
  case $(ethtool -i eth$p) in *igb*) ethtool -L eth$p combined "$queues";; esac
  n=100; while [ "$(cat /sys/class/net/eth$p/carrier 2>/dev/null)" != 1 ] && [ $n -gt 0 ]; do usleep 100000; n=$((n-1)); done
  p=$((p+1))
done
echo "lab: ready, uptime $(cut -d' ' -f1 /proc/uptime)"
# A job with a root of its own (Job.Root): its init takes over here, and runs the job as a unit.
if [ -e /share/root.tar ]; then
  mkdir /new; mount -t tmpfs -o mode=755,size=90% root /new; tar xf /share/root.tar -C /new; mkdir -p /new/share /new/run; cp /bin/rx* /new/usr/local/bin/ 2>/dev/null
  mount --move /share /new/share; umount /sys/fs/bpf /sys/kernel/tracing /sys/kernel/debug /dev/pts /tmp
  for d in proc sys dev; do mount --move /$d /new/$d; done
  exec switch_root /new /sbin/init
fi
cd /share; bash -c '. /lib.sh; . /share/job' >/share/out 2>&1 </dev/null; echo $? >/share/rc
sync; poweroff -f
