package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/steer/control"
)

// confinement names the security module that confines this process and says where its refusals are written down; "" where none
// does. What it refuses comes back as EACCES or EPERM, like anything else.
func confinement(fsys host.FS) string {
	read := func(file string) string {
		text, err := fsys.ReadFile(file)
		if err != nil {
			return ""
		}
		return strings.Trim(string(text), " \n\x00")
	}
	modules := strings.Split(read("/sys/kernel/security/lsm"), ",")
	label := read("/proc/self/attr/apparmor/current") // since 5.8; attr/current is the first module's
	if label == "" {
		label = read("/proc/self/attr/current")
	}
	// SELinux: user:role:type:level. AppArmor: a profile, which may hold colons, and its mode in brackets.
	if profile, mode, ok := strings.Cut(label, " ("); ok && (mode == "enforce)" || mode == "kill)") {
		return fmt.Sprintf("the AppArmor profile %s confines this process; what it refuses: journalctl -k -g 'apparmor=.DENIED'", profile)
	}
	if slices.Contains(modules, "selinux") || read("/sys/fs/selinux/enforce") == "1" {
		if f := strings.Split(read("/proc/self/attr/current"), ":"); len(f) >= 3 && !strings.HasPrefix(f[2], "unconfined_") && read("/sys/fs/selinux/enforce") != "0" {
			return fmt.Sprintf("SELinux confines this process to the domain %s; what it refuses: ausearch -m avc -ts recent", f[2])
		}
	}
	return ""
}

// denied says whether a reason that came as text is a refusal that a security module may be behind.
func denied(why string) bool {
	return slices.ContainsFunc([]string{unix.EACCES.Error(), unix.EPERM.Error(), "a security module"}, func(s string) bool { return strings.Contains(why, s) })
}

// writeChecks asks, without writing, whether this process may change settings of these interfaces and keep a journal.
func (e *env) writeChecks(devices []string, journal string) []check {
	var out []check
	admin := check{Area: areaChange, Name: "CAP_NET_ADMIN", OK: true}
	switch has, err := host.HasCap(unix.CAP_NET_ADMIN); {
	case err != nil:
		admin.OK, admin.Why = false, err.Error()
	case !has:
		admin.OK, admin.Why, admin.Grant = false, "this process does not have it", "sudo rxsteer …"
	}
	if !admin.OK {
		admin.Lost = "ethtool's settings, RPS, RFS and XPS cannot be changed"
	}
	out = append(out, admin)
	for unix.Access(journal, unix.F_OK) != nil && journal != "/" {
		journal = filepath.Dir(journal) // where it would be made
	}
	files := []struct{ file, lost string }{
		{"/proc/sys/net/core/netdev_budget", "sysctls cannot be changed"},
		{journal, "no journal can be kept, so nothing can be changed"},
	}
	for _, d := range devices {
		files = append(files, struct{ file, lost string }{"/sys/class/net/" + d + "/queues/rx-0/rps_cpus", "RPS, RFS and XPS cannot be changed"})
	}
	for _, f := range files {
		c := check{Area: areaChange, Name: "write " + f.file, OK: true}
		at := f.file
		if o, ok := e.fs.(host.OS); ok {
			at = o.Path(at)
		}
		if err := unix.Access(at, unix.W_OK); err != nil {
			c.OK, c.Why, c.Lost = false, err.Error(), f.lost
			if errors.Is(err, unix.EACCES) {
				c.Grant = "sudo rxsteer …"
			}
			if errors.Is(err, unix.EROFS) {
				c.Grant = "run outside the container, or mount it read-write"
			}
		}
		out = append(out, c)
	}
	return out
}

// cannotSteer is why this process cannot do what the configuration asks of it, "" where it can or nothing is asked.
func (e *env) cannotSteer(c *control.Config, stateDir string) string {
	if !steers(c) {
		return ""
	}
	var devices []string
	for _, d := range c.Devices {
		if _, err := e.fs.Readlink("/sys/class/net/" + d.Name); err == nil {
			devices = append(devices, d.Name)
		}
	}
	var why []string
	for _, k := range e.writeChecks(devices, stateDir) {
		if !k.OK && k.Why != unix.ENOENT.Error() { // a network namespace has not every sysctl
			why = append(why, fmt.Sprintf("%s: %s", k.Name, k.Why))
		}
	}
	if len(why) == 0 {
		return ""
	}
	return strings.Join(why, "; ") + ": of the unit's drop-ins steer.conf grants it (see rxsteer-agent.service), in the chart mode: auto; until then it can only advise"
}
