package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/control"
)

// with runs the program in b with these capabilities and no other, user root: files of root are its own.
func (r *rig) with(caps string, args ...string) outcome {
	r.t.Helper()
	return r.as([]string{"--bounding-set=-all" + caps, "--inh-caps=-all"}, args...)
}

// as runs the program in b as setpriv makes it.
func (r *rig) as(who []string, args ...string) outcome {
	r.t.Helper()
	return outcomeOf(r.t, r.b.Command(r.t.Context(), "setpriv", slices.Concat(who, []string{"rxsteer"}, args)...))
}

// nobody is an ordinary user, who may run the tests' programs.
func nobody(t *testing.T) []string {
	t.Helper()
	exe, err := exec.LookPath("rxsteer")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(exe)
	if err := errors.Join(os.Chmod(filepath.Dir(bin), 0o755), os.Chmod(bin, 0o755)); err != nil {
		t.Fatal(err)
	}
	return []string{"--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"}
}

// checks is what doctor says, by name of the check.
func (o outcome) checks(t *testing.T) (doctorDoc, map[string]check) {
	t.Helper()
	var doc doctorDoc
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		t.Fatalf("%v: %s%s", err, o.stdout, o.stderr)
	}
	by := map[string]check{}
	for _, c := range doc.Checks {
		by[c.Name] = c
	}
	return doc, by
}

// TestPrivilegesAreAsTheDocumentSays: what each row of docs/capabilities.md names works with that right alone, and without it
// what the row says is left.
func TestPrivilegesAreAsTheDocumentSays(t *testing.T) {
	text, err := os.ReadFile("../../docs/capabilities.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Privileges")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string][2]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|([^|]*)\|$`).FindAllStringSubmatch(table, -1) {
		if name := strings.TrimSpace(m[1]); name != "of the process" {
			rows[name] = [2]string{m[2], strings.TrimSpace(m[3])}
		}
	}
	tests := map[string]func(t *testing.T, r *rig, what, without string){
		"none":                                  noPrivilege,
		"CAP_BPF, CAP_PERFMON":                  privilegeToMeasure,
		"CAP_SYSLOG":                            privilegeOfNames,
		"CAP_NET_ADMIN":                         privilegeToSet,
		"root's files, writable /proc and /sys": privilegeOfFiles,
		"CAP_SYS_ADMIN, or sysctl kernel.perf_event_paranoid at most 2": nil, // such kernels alone; what they say is in bpf: TestRefusedTicks
		"CAP_SYS_RESOURCE": nil, // Linux 5.10 alone: rxlab matrix loads the programs there
	}
	for name := range tests {
		if _, ok := rows[name]; !ok {
			t.Errorf("the document has no row %q", name)
		}
	}
	for name, row := range rows {
		test, ok := tests[name]
		if !ok {
			t.Errorf("nothing tries the document's row %q", name)
		}
		if test == nil {
			continue
		}
		t.Run(name, func(t *testing.T) { test(t, newRig(t), row[0], row[1]) })
	}
}

// noPrivilege runs each command that the row names as an ordinary user.
func noPrivilege(t *testing.T, r *rig, what, _ string) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.rxrec")
	r.rxsteer("record", "-w", file, "--for", "2s", "--level", "0").want(t, exitOK)
	capture := filepath.Join(dir, "a.pcap")
	if err := os.WriteFile(capture, skewedCapture(t), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	live, from, ok := strings.Cut(what, ", plan and diagnose with --from")
	if !ok {
		t.Fatalf("the row is %q", what)
	}
	var runs [][]string
	for c := range strings.SplitSeq(live, ", ") {
		runs = append(runs, []string{c})
	}
	runs = append(runs, []string{"plan", "--from", file}, []string{"diagnose", "--from", file, "--fail-on", "never"})
	for c := range strings.SplitSeq(strings.TrimPrefix(from, ", "), ", ") {
		switch c {
		case "simulate":
			runs = append(runs, []string{c, capture})
		case "report":
			runs = append(runs, []string{c, "--from", file, "-w", "/dev/null"})
		default:
			runs = append(runs, []string{c})
		}
	}
	who := nobody(t)
	for _, args := range runs {
		if o := r.as(who, args...); o.code != exitOK {
			t.Errorf("%v: exit %d: %s", args, o.code, o.stderr)
		}
	}
}

func privilegeToMeasure(t *testing.T, r *rig, what, without string) {
	if !strings.Contains(what, "tracepoints") || !strings.HasPrefix(without, "--level 0") {
		t.Fatalf("the row is %q, %q", what, without)
	}
	if doc, _ := r.with(",+bpf,+perfmon", "doctor", "-o", "json").checks(t); !doc.Live || len(doc.MissingCaps) > 0 {
		t.Errorf("with both: live %v, missing %v", doc.Live, doc.MissingCaps)
	}
	r.with(",+bpf,+perfmon", "diagnose", "--level", "1", "--for", "1s", "--fail-on", "never").want(t, exitOK)
	for has, lacks := range map[string]string{",+bpf": "CAP_PERFMON", ",+perfmon": "CAP_BPF"} {
		doc, by := r.with(has, "doctor", "-o", "json").checks(t)
		if doc.Live || !slices.Equal(doc.MissingCaps, []string{lacks}) {
			t.Errorf("%s: live %v, missing %v", has, doc.Live, doc.MissingCaps)
		}
		if c := by["napi_poll"]; c.OK || !strings.Contains(c.Why, "needs "+lacks) || !strings.Contains(c.Grant, "setcap "+strings.ToLower(lacks)) {
			t.Errorf("%s: %+v", has, c)
		}
		r.with(has, "diagnose", "--level", "1", "--for", "1s").want(t, exitPrivilege, "needs "+lacks, "--level 0")
		r.with(has, "diagnose", "--level", "0", "--for", "1s", "--fail-on", "never").want(t, exitOK)
	}
}

func privilegeOfNames(t *testing.T, r *rig, what, without string) {
	if !strings.Contains(what, "names of kernel functions") || without != "shares per queue and CPU only" {
		t.Fatalf("the row is %q, %q", what, without)
	}
	const nameless = "functions have no names"
	profile := []string{"profile", "--for", "1s"}
	if o := r.with(",+bpf,+perfmon,+syslog", profile...).want(t, exitOK); strings.Contains(o.stdout, nameless) {
		t.Errorf("with it:\n%s", o.stdout)
	}
	o := r.with(",+bpf,+perfmon", profile...).want(t, exitOK)
	// kallsyms_show_value of kernel/ksyms_common.c: to everybody where both say so.
	setting := func(name string) string {
		b, err := os.ReadFile("/proc/sys/kernel/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	everybody := setting("kptr_restrict") == "0" && slices.Contains([]string{"-1", "0", "1"}, setting("perf_event_paranoid"))
	if strings.Contains(o.stdout, nameless) == everybody {
		t.Errorf("without it, names for everybody: %v\n%s", everybody, o.stdout)
	}
}

func privilegeToSet(t *testing.T, r *rig, what, without string) {
	if !strings.HasPrefix(what, "apply, trial, rollback, mode auto") || without != "advice" {
		t.Fatalf("the row is %q, %q", what, without)
	}
	plan := r.plan(nil)
	apply := r.apply(plan)
	if o := r.with(",+bpf,+perfmon", apply...); o.code == exitOK || r.rps() != "" || !strings.Contains(o.stdout+o.stderr, "operation not permitted") {
		t.Errorf("without it: exit %d, mask %q: %s%s", o.code, r.rps(), o.stdout, o.stderr)
	}
	if _, by := r.with("", "doctor", "-o", "json").checks(t); by["CAP_NET_ADMIN"].OK || by["CAP_NET_ADMIN"].Lost == "" {
		t.Errorf("without it doctor says %+v", by["CAP_NET_ADMIN"])
	}
	r.with("", "plan", "--level", "0", "--for", "1s").want(t, exitOK)
	r.with(",+net_admin", apply...).want(t, exitOK)
	if r.rps() != "1" {
		t.Errorf("with it: mask %q", r.rps())
	}
	r.with(",+net_admin", "rollback", "--state-dir", r.dir).want(t, exitOK)
	if r.rps() != "" {
		t.Errorf("rolled back: mask %q", r.rps())
	}
}

func privilegeOfFiles(t *testing.T, r *rig, what, without string) {
	if what != "sysctls, vectors; the journal in /run/rxsteer" || without != "advice" {
		t.Fatalf("the row is %q, %q", what, without)
	}
	const sysctl = "write /proc/sys/net/core/netdev_budget" // of the first network namespace alone
	doctor := func(who ...string) map[string]check {
		cmd := exec.CommandContext(t.Context(), who[0], append(who[1:], "rxsteer", "doctor", "-o", "json")...)
		_, by := outcomeOf(t, cmd).checks(t)
		return by
	}
	if c := doctor("setpriv", "--bounding-set=-all", "--inh-caps=-all")[sysctl]; !c.OK {
		t.Errorf("root without a capability: %+v", c)
	}
	by := doctor(append([]string{"setpriv"}, nobody(t)...)...)
	if c := by[sysctl]; c.Why != unix.EACCES.Error() || c.Lost == "" || c.Grant == "" {
		t.Errorf("not root: %+v", c)
	}
	if c := by["write "+apply.DefaultDir]; c.OK || by["write "+filepath.Dir(apply.DefaultDir)].OK {
		t.Errorf("not root: the journal: %+v", c)
	}
	by = doctor("unshare", "-m", "sh", "-c", `mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"`, "sh")
	if c := by[sysctl]; c.Why != unix.EROFS.Error() || c.Grant == "" {
		t.Errorf("a read-only /proc/sys: %+v", c)
	}
}

func outcomeOf(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	p := &process{Cmd: cmd}
	p.Cmd.Stdout, p.Cmd.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return finish(t, p)
}

// in is a command line that runs the program in mounts of its own, after a shell's lines.
func (r *rig) in(setup string, args ...string) *exec.Cmd {
	return r.b.Command(r.t.Context(), "unshare", append([]string{"-m", "sh", "-c", "set -e\n" + setup + "\nexec rxsteer \"$@\"", "sh"}, args...)...)
}

// steered is a configuration that steers b0.
func steered(t *testing.T, more string) string {
	return file(t, "auto.yaml", "profile: false\ndevices:\n- {name: b0, mode: auto}\n"+more)
}

// TestHostsThatLackSomething: on each doctor says what is missing and what to do, and the agent serves what there is and says so in
// /readyz, the metrics and, once, the log; or both refuse, and say what to do.
func TestHostsThatLackSomething(t *testing.T) {
	const run = "mount -t tmpfs none /run; mkdir /run/rxsteer\n"
	const etc = "mount -t tmpfs none /etc; mkdir /etc/rxsteer\n"
	for _, tc := range []struct {
		name, setup  string
		check        string // of doctor that fails, "" none
		why, advice  string // of it, or of the refusal
		what, reason string // of /readyz, "" none
		refused      bool
	}{
		{"a newer journal", run + `echo '{"v":9,"tx":"1"}' >/run/rxsteer/journal.jsonl`,
			"journal in /run/rxsteer", "format 9, this one reads up to 1", "the rxsteer that wrote it", "the journal", "written by a newer rxsteer", false},
		{"a newer file of persist", etc + `echo '{"version":9,"more":1}' >/etc/rxsteer/persist.json`,
			"/etc/rxsteer/persist.json", "format 9, this one reads up to 1", "write it anew: rxsteer persist", "what is persisted", "written by a newer rxsteer", false},
		{"a read-only root", "mount -t tmpfs -o ro none /run; mount -o remount,bind,ro /",
			"write /run", "read-only file system", "mount it read-write", "steering", "read-only file system", false},
		{"a read-only /sys", "mount -o remount,bind,ro /sys",
			"write /sys/class/net/b0/queues/rx-0/rps_cpus", "read-only file system", "mount it read-write", "steering", "steer.conf grants it", false},
		{"interrupts that a runtime hides", "mount --bind /dev/null /proc/interrupts",
			"/proc/interrupts", "a container's runtime hides it", "RXSTEER_PROC", "", "", false},
		{"no /sys", "mount -t tmpfs none /sys", "", "open /sys/class/net", "RXSTEER_SYS", "", "", true},
		{"cgroups of version 1 alone", "mount -t tmpfs none /sys/fs/cgroup; mkdir /sys/fs/cgroup/x; mount -t cgroup -o none,name=rxsteer-test none /sys/fs/cgroup/x", "", "", "", "", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			config := steered(t, "")
			agent := []string{"agent", "--config", config, "--web.listen-address", "127.0.0.1:0"}
			if tc.refused {
				for _, args := range [][]string{{"doctor"}, agent} {
					outcomeOf(t, r.in(tc.setup, args...)).want(t, exitFailed, tc.why, tc.advice)
				}
				return
			}
			_, by := outcomeOf(t, r.in(tc.setup, "doctor", "-o", "json")).want(t, exitOK).checks(t)
			if c := by[tc.check]; tc.check != "" && (c.OK || !strings.Contains(c.Why, tc.why) || c.Lost == "" || !strings.Contains(c.Grant, tc.advice)) {
				t.Errorf("doctor: %+v", c)
			}
			outcomeOf(t, r.in(tc.setup, "status", "b0")).want(t, exitOK)
			cmd := r.in(tc.setup, agent...)
			url, rest := startAgent(t, cmd)
			client := clientIn(r.b)
			awaitSample(t, client, url)
			if tc.what != "" {
				r.degraded(url, tc.what, tc.reason)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			rest()
			if err := cmd.Wait(); err != nil {
				t.Errorf("its end: %v", err)
			}
		})
	}
}

// degraded waits until an agent says in /readyz and in the metrics that something does not work.
func (r *rig) degraded(url, what, reason string) {
	r.t.Helper()
	client := clientIn(r.b)
	await(r.t, what+" in /readyz", func() bool {
		code, body := get(r.t, client, url+"/readyz")
		return code == http.StatusOK && regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(what)+": .*"+regexp.QuoteMeta(reason)).MatchString(body)
	})
	if _, body := get(r.t, client, url+"/metrics"); !strings.Contains(body, `rxsteer_degraded{what="`+what+`"`) {
		r.t.Errorf("the metrics do not tell that %s is degraded", what)
	}
}

// TestANewerBaselineIsRefused before anything is started.
func TestANewerBaselineIsRefused(t *testing.T) {
	r := newRig(t)
	baseline := file(t, "baseline.json", `{"version": 99}`)
	r.rxsteer("agent", "--config", steered(t, "baseline: "+baseline+"\n"), "--web.listen-address", "127.0.0.1:0", "--state-dir", t.TempDir()).
		want(t, exitFailed, "version 99 is newer than")
}

// TestAUnitWithoutItsDropIn: asked to steer with the rights of the unit as shipped it measures, and names the drop-in.
func TestAUnitWithoutItsDropIn(t *testing.T) {
	r := newRig(t)
	cmd := r.b.Command(t.Context(), "setpriv", "--bounding-set=-all,+bpf,+perfmon", "--inh-caps=-all", "rxsteer", "agent",
		"--config", steered(t, ""), "--web.listen-address", "127.0.0.1:0", "--state-dir", t.TempDir())
	url, _ := startAgent(t, cmd)
	awaitSample(t, clientIn(r.b), url)
	r.degraded(url, "steering", "CAP_NET_ADMIN: this process does not have it: of the unit's drop-ins steer.conf grants it")
}

// TestDoctorNamesTheAgentThatSteers, beside which another is refused.
func TestDoctorNamesTheAgentThatSteers(t *testing.T) {
	dir := t.TempDir()
	if got := agentChecks(dir); len(got) > 0 {
		t.Errorf("with none: %+v", got)
	}
	mine := turn{dir: dir}
	defer mine.release()
	if err := mine.take(&control.Config{Mode: control.Auto}); err != nil {
		t.Fatal(err)
	}
	if got := agentChecks(dir); len(got) != 1 || !got[0].OK || !strings.Contains(got[0].Name, fmt.Sprintf("(pid %d)", os.Getpid())) {
		t.Errorf("with one: %+v", got)
	}
	mine.release()
	if got := agentChecks(dir); len(got) > 0 {
		t.Errorf("when it has ended: %+v", got)
	}
}

// labelled is a host whose security module labels this process.
type labelled struct {
	host.FS
	text map[string]string
}

func (l labelled) ReadFile(path string) ([]byte, error) {
	if text, ok := l.text[path]; ok {
		if text == "" {
			return nil, &fs.PathError{Op: "open", Path: path, Err: unix.EACCES}
		}
		return []byte(text), nil
	}
	if strings.HasPrefix(path, "/proc/self/attr/") || strings.HasPrefix(path, "/sys/fs/selinux") || strings.HasPrefix(path, "/sys/kernel/security") {
		return nil, fs.ErrNotExist
	}
	return l.FS.ReadFile(path)
}

// TestASecurityModuleIsNamed where it confines this process, and only there. The forms are of apparmor_getprocattr
// (security/apparmor/procattr.c) and security_sid_to_context (security/selinux/ss/services.c).
func TestASecurityModuleIsNamed(t *testing.T) {
	const current, apparmor, modules, enforce = "/proc/self/attr/current", "/proc/self/attr/apparmor/current", "/sys/kernel/security/lsm", "/sys/fs/selinux/enforce"
	for name, tc := range map[string]struct {
		text map[string]string
		want string
	}{
		"none":                                      {nil, ""},
		"AppArmor, old kernel":                      {map[string]string{current: "docker-default (enforce)\n"}, "the AppArmor profile docker-default confines"},
		"AppArmor beside another":                   {map[string]string{apparmor: "/usr/bin/rxsteer//child (enforce)\n", current: "lockdown\n"}, "the AppArmor profile /usr/bin/rxsteer//child confines"},
		"AppArmor, unconfined":                      {map[string]string{apparmor: "unconfined\n"}, ""},
		"AppArmor, complains":                       {map[string]string{apparmor: "rxsteer (complain)\n"}, ""},
		"AppArmor, a profile that confines nothing": {map[string]string{apparmor: "crun (unconfined)\n"}, ""},
		"SELinux":                                   {map[string]string{current: "system_u:system_r:container_t:s0:c1,c2\x00", modules: "lockdown,capability,selinux", enforce: "1"}, "to the domain container_t"},
		"SELinux, permissive":                       {map[string]string{current: "system_u:system_r:container_t:s0\x00", modules: "capability,selinux", enforce: "0"}, ""},
		"SELinux, unconfined":                       {map[string]string{current: "unconfined_u:unconfined_r:unconfined_t:s0\x00", enforce: "1"}, ""},
		"SELinux, not visible":                      {map[string]string{current: "system_u:system_r:rxsteer_t:s0\x00", modules: "capability,selinux"}, "to the domain rxsteer_t"},
		"Smack":                                     {map[string]string{current: "_\n", modules: "capability,smack"}, ""},
	} {
		if got := confinement(labelled{host.OS{}, tc.text}); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	// Who asks why something is refused is told.
	e, stdout, stderr := testEnv("doctor", "-o", "json")
	e.fs = labelled{host.OS{}, map[string]string{apparmor: "rxsteer (enforce)", "/proc/softirqs": ""}}
	if code := run(t.Context(), e); code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	_, by := outcome{stdout: stdout.String()}.checks(t)
	if c := by["/proc/softirqs"]; c.OK || !strings.Contains(c.Grant, "AppArmor profile rxsteer") || !strings.Contains(c.Grant, "journalctl") {
		t.Errorf("doctor: %+v", c)
	}
	var log bytes.Buffer
	state := newAgentState(slog.New(slog.NewTextHandler(&log, nil)))
	state.confined = confinement(e.fs)
	for range 2 {
		state.degrade("writing settings of eth0", "write rps_cpus: permission denied")
	}
	state.degrade("other", "no such file or directory")
	if d := state.degraded(); !strings.Contains(d["writing settings of eth0"], "AppArmor profile rxsteer") || strings.Contains(d["other"], "AppArmor") || strings.Count(log.String(), "AppArmor") != 1 {
		t.Errorf("%v; log %s", d, &log)
	}
}

// withoutPerf runs a command to which perf_event_open(2) is refused, as container runtimes' seccomp profiles do.
func withoutPerf() {
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PERF_EVENT_OPEN, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	exe, err := exec.LookPath(os.Args[1])
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	}
	if err == nil {
		err = unix.Exec(exe, os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestARefusedProfileIsDegraded: where perf_event_open(2) is refused, by seccomp or for want of CAP_PERFMON, /profile says why,
// and so do /readyz, the metrics and, once, the log; all else is served.
func TestARefusedProfileIsDegraded(t *testing.T) {
	for name, tc := range map[string]struct {
		as     []string
		reason string
		timed  bool // polls are still measured
	}{
		"seccomp":     {[]string{"without-perf"}, "perf_event_open): not enough privilege for BPF: kernel.perf_event_paranoid, seccomp or a security module", true},
		"CAP_PERFMON": {[]string{"setpriv", "--bounding-set=-perfmon,-sys_admin", "--inh-caps=-all"}, "needs CAP_PERFMON", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			args := slices.Concat(tc.as, []string{"rxsteer", "agent", "--config", file(t, "a.yaml", "mode: off\n"), "--web.listen-address", "127.0.0.1:0", "--state-dir", t.TempDir()})
			cmd := r.b.Command(t.Context(), args[0], args[1:]...)
			url, rest := startAgent(t, cmd)
			client := clientIn(r.b)
			body := awaitSample(t, client, url)
			r.degraded(url, "/profile", tc.reason)
			if got := strings.Contains(body, "\nrxsteer_attention_level 1\n"); got != tc.timed {
				t.Errorf("polls are measured: %v, want %v", got, tc.timed)
			}
			if code, body := get(t, client, url+"/profile"); code != http.StatusServiceUnavailable || !strings.Contains(body, tc.reason) {
				t.Errorf("/profile: %d %s", code, body)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if said := rest(); strings.Count(said, "what=/profile") != 1 {
				t.Errorf("log: %s", said)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
