package main

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

// persistState tells what the plan of rxlab persist sets, by queue: numbers of interrupts change.
const persistState = `
state() {
  ethtool -x eth0 | sed -n '/^ *[0-9]*:/p'
  ethtool -c eth0 | sed -n 's/^rx-usecs:/rx-usecs/p'
  awk '$NF ~ "^eth0-(rx|TxRx|rxtx)-?[0-9]+$" {sub(":","",$1); print $NF, $1}' /proc/interrupts | while read -r name irq; do
    echo "$name $(cat /proc/irq/$irq/smp_affinity_list)"
  done
  grep . /sys/class/net/eth0/queues/rx-*/rps_cpus
}
`

// persistFirst applies, keeps and persists; what it wrote goes to /share.
const persistFirst = persistState + `
set -e
RXSTEER_PLAN=/tmp/plan.yaml rxapplytest -test.run '^TestPlanOnTheDriver$'
state >/tmp/before
rxsteer apply /tmp/plan.yaml --yes --for 0 | tail -1
rxsteer persist
mkdir -p /etc/rxsteer
state >/etc/rxsteer/want
if cmp -s /tmp/before /etc/rxsteer/want; then echo "the plan changed nothing"; exit 1; fi
tar cf /share/persist.tar -C / etc/rxsteer etc/systemd var/lib/rxsteer
`

// persistAgain is the next boot: the unit's own command makes the settings true, notes the boot as healthy,
// and makes them true again after ethtool -L.
const persistAgain = persistState + `
same() { state >/tmp/is; cmp -s /etc/rxsteer/want /tmp/is; }
wait_same() { n=$1; until same; do n=$((n-1)); if [ $n -le 0 ]; then echo "NOT SO: $2"; diff /etc/rxsteer/want /tmp/is; cat /tmp/log; exit 1; fi; sleep 1; done; echo "== $2"; }
tar xf /tmp/persist.tar -C /
if same; then echo "the new boot has the settings already: nothing is tested"; exit 1; fi
command=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/rxsteer-persist.service)
echo "== $command"
$command >/tmp/log 2>&1 &
pid=$!
wait_same 40 "after the reboot all is as it was kept"
n=100; until grep -q '"healthy":true' /var/lib/rxsteer/health.json && grep -q "$(cat /proc/sys/kernel/random/boot_id)" /var/lib/rxsteer/health.json; do n=$((n-1)); [ $n -gt 0 ] || { echo "NOT SO: healthy"; cat /tmp/log /var/lib/rxsteer/health.json; exit 1; }; sleep 1; done
echo "== this boot is noted as healthy"
ethtool -X eth0 default && ethtool -L eth0 combined 2 || exit 1 # a table that somebody set holds its queues
sleep 6
grep -q "eth0 has queues 2 rx 2 tx, was confirmed with 4 rx 4 tx" /tmp/log || { echo "NOT SO: refusal of 2 queues"; cat /tmp/log; exit 1; }
echo "== with 2 queues it refuses and says so"
kill -0 $pid || { echo "NOT SO: it goes on watching"; cat /tmp/log; exit 1; }
ethtool -L eth0 combined 4 || exit 1
if same; then echo "== ethtool -L kept everything"; fi
wait_same 60 "after ethtool -L all is as it was kept"
cat /tmp/log
rxsteer history
kill $pid; wait $pid
rxsteer persist --remove
left=$(find /etc/rxsteer /etc/systemd/system /var/lib/rxsteer -name '*rxsteer*' -o -name persist.json -o -name health.json | grep -v '/rxsteer$')
if [ -n "$left" ]; then echo "NOT SO: removed: $left"; exit 1; fi
`

// runPersist persists a plan in one guest and boots a second with the files it wrote.
func runPersist(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("persist", flag.ContinueOnError)
	m := qemu.Machine{}
	set.StringVar(&m.NIC, "nic", "igb", "igb, virtio or vmxnet3")
	set.StringVar(&m.Kernel, "kernel", "6.12", "6.12, 6.1 or 5.10")
	if err := set.Parse(args); err != nil || set.NArg() > 0 {
		return flag.ErrHelp
	}
	return withLab(ctx, func(l *lab) ([]line, error) { return l.persist(ctx, m) })
}

func (l *lab) persist(ctx context.Context, m qemu.Machine) ([]line, error) {
	row := line{"persist", machine(m), "kept after a reboot and after ethtool -L", "pass", 0}
	begin(row.what, row.machine)
	boot := func(script string) (*qemu.Result, error) {
		res, err := l.cache.Boot(ctx, m, qemu.Job{Script: script, Bin: l.bin, Output: &labelled{name: "persist"}})
		if err == nil {
			row.took += res.Took
			if res.Status != 0 {
				err = &qemu.Failure{Code: qemu.ExitAssertion, Line: fmt.Sprintf("persist: the guest's job ended with status %d", res.Status)}
			}
		}
		return res, err
	}
	first, err := boot(persistFirst)
	if err == nil && len(first.Files["persist.tar"]) == 0 {
		err = &qemu.Failure{Code: qemu.ExitLab, Line: "the first boot left no files"}
	}
	if err == nil {
		_, err = boot("base64 -d >/tmp/persist.tar <<'EOF'\n" + base64.StdEncoding.EncodeToString(first.Files["persist.tar"]) + "\nEOF\n" + persistAgain)
	}
	return row.of(err)
}
