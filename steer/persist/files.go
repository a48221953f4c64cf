package persist

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// Where what persists lives.
const (
	PlanFile   = "/etc/rxsteer/persist.json"
	HealthFile = "/var/lib/rxsteer/health.json"
	UnitFile   = "/etc/systemd/system/rxsteer-persist.service"
	UnitName   = "rxsteer-persist.service"
	WantsFile  = "/etc/systemd/system/multi-user.target.wants/" + UnitName
	sysctlFile = "/etc/sysctl.d/60-rxsteer.conf"
	banScript  = "/etc/rxsteer/irqbalance-policy.sh"
	banDropIn  = "/etc/systemd/system/irqbalance.service.d/rxsteer.conf"
)

// Output is one file to write. Link, when set, makes it a symbolic link.
type Output struct {
	Path string
	Text string
	Link string
	Mode uint32
}

// All are the files that may be there, for removal.
func All() []string {
	return []string{WantsFile, UnitFile, PlanFile, sysctlFile, banScript, banDropIn, HealthFile}
}

// Outputs are the files that make f survive a reboot. exe is this program as the unit starts it;
// irqbalance tells whether it is installed here.
func (f *File) Outputs(exe string, irqbalance bool) ([]Output, error) {
	text, err := f.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", PlanFile, err)
	}
	out := []Output{
		{Path: PlanFile, Text: string(text), Mode: 0o644},
		{Path: UnitFile, Text: Unit(exe), Mode: 0o644},
		{Path: WantsFile, Link: UnitFile},
	}
	sysctls := ""
	var moved []string
	for _, c := range f.Plan.Changes {
		if c.Target == knob.Host {
			sysctls += strings.TrimPrefix(knob.Command(c.Ref(), c.To), "sysctl -w ") + "\n"
		}
		if d := c.Target.Device(); c.Knob == knob.IRQAffinity && !slices.Contains(moved, d) {
			moved = append(moved, d)
		}
	}
	if sysctls != "" {
		out = append(out, Output{Path: sysctlFile, Text: "# Written by rxsteer persist; rxsteer persist --remove takes it away.\n" + sysctls, Mode: 0o644})
	}
	if len(moved) > 0 && irqbalance {
		out = append(out, Output{Path: banScript, Text: policyScript(moved), Mode: 0o755},
			Output{Path: banDropIn, Text: "# Written by rxsteer persist: irqbalance leaves the vectors it steers alone.\n[Service]\nExecStart=\nExecStart=/usr/sbin/irqbalance --foreground --policyscript=" + banScript + " $IRQBALANCE_ARGS\n", Mode: 0o644})
	}
	return out, nil
}

// policyScript tells irqbalance to leave the vectors of some devices alone: it runs it for each interrupt with the
// device in sysfs and the number, and reads key=value lines (irqbalance(1), --policyscript). Virtio
// devices have their vectors at the PCI device above them.
func policyScript(devices []string) string {
	return `#!/bin/sh
# Written by rxsteer persist: irqbalance asks this for every interrupt ($2 is its number).
for d in ` + strings.Join(devices, " ") + `; do
	for at in "/sys/class/net/$d/device/msi_irqs" "/sys/class/net/$d/device/../msi_irqs"; do
		if [ -e "$at/$2" ]; then
			echo ban=true
			exit 0
		fi
	done
done
exit 0
`
}

// Unit is the systemd unit. It comes after everything that is known to reset queues: udev and its link files,
// the network managers, tuned, and irqbalance, which moves all vectors once when it starts.
func Unit(exe string) string {
	return `# Written by rxsteer persist; rxsteer persist --remove takes it away.
[Unit]
Description=rxsteer: make confirmed receive settings true again
Documentation=man:rxsteer-persist(1)
ConditionPathExists=` + PlanFile + `
After=systemd-sysctl.service systemd-udevd.service systemd-udev-trigger.service systemd-udev-settle.service
After=NetworkManager.service systemd-networkd.service networking.service network.service ifupdown-pre.service wicked.service connman.service
After=network.target tuned.service irqbalance.service

[Service]
ExecStart=` + exe + ` persist-run
Restart=on-failure
RestartSec=10s
# 4: refused (another kernel, driver or queue count, or the last boot was not healthy); again would be the same.
RestartPreventExitStatus=4
RuntimeDirectory=rxsteer
RuntimeDirectoryPreserve=yes
StateDirectory=rxsteer
CapabilityBoundingSet=CAP_NET_ADMIN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_SYS_PTRACE
NoNewPrivileges=yes
ProtectHome=yes
ProtectKernelModules=yes
PrivateTmp=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
LockPersonality=yes
MemoryMax=128M

[Install]
WantedBy=multi-user.target
`
}
