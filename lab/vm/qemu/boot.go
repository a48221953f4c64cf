package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Job is what a guest runs.
type Job struct {
	// Script is bash, with busybox's tools, ethtool, ip, tc, ss and irqbalance, and
	// the functions host, host_bg and host_wait (guest_lib.sh). Its folder is /share.
	Script string
	// Bin are static programs to put on the guest's and the sender's PATH.
	Bin []string
	// Root, a tar archive, is the file system of another system: it is unpacked into memory and its own init boots it.
	// The script then runs with its programs as the unit lab-job.service; of Bin what begins with rx is in /usr/local/bin.
	Root string
	// Files are put into /share.
	Files []string
	// Timeout is when QEMU is killed, counted from its start; 0 is five minutes.
	Timeout time.Duration
	// Output gets the script's output while it runs; nil drops it.
	Output io.Writer
}

// Result is a guest that ran its script to the end.
type Result struct {
	Status  int               // the script's exit status
	Output  string            // what it printed, both streams
	Files   map[string][]byte // the files it left in /share, by name
	Console string            // the kernel's console
	Took    time.Duration     // start of QEMU to its end
}

// mostBoots is how often a machine is booted whose emulation breaks down.
const mostBoots = 4

// Boot boots a machine and runs a job in it, again where the emulation broke down.
// A Failure is returned where the guest gave no exit status; a status other than 0 is none.
func (c *Cache) Boot(ctx context.Context, m Machine, job Job) (*Result, error) {
	notice := job.Output
	if notice == nil {
		notice = os.Stderr
	}
	for n := 1; ; n++ {
		res, err := c.boot(ctx, m, job)
		f, ok := errors.AsType[*Failure](err)
		if !ok || !f.emulation || n == mostBoots {
			return res, err
		}
		fmt.Fprintf(notice, "the emulation broke down, booting again: %s\n", f.Line)
	}
}

func (c *Cache) boot(ctx context.Context, m Machine, job Job) (*Result, error) {
	m, err := m.WithDefaults()
	if err != nil {
		return nil, err
	}
	image, err := c.Prepare(ctx, m.Kernel)
	if err != nil {
		return nil, err
	}
	dir, release, err := c.newRun()
	if err != nil {
		return nil, err
	}
	defer release()
	r := &run{dir: dir, share: filepath.Join(dir, "share"), machine: m}
	if err := r.fill(job); err != nil {
		return nil, err
	}
	ns, err := newNetns()
	if err != nil {
		return nil, err
	}
	defer ns.close()
	r.ns = ns
	if err := r.connect(); err != nil {
		return nil, err
	}
	return r.boot(ctx, image, job)
}

type run struct {
	dir, share string
	machine    Machine
	ns         *netns
}

// initrd is the kernel's image followed by an archive of the job's programs (the kernel
// unpacks one after the other): from memory they start faster than over 9p.
func (r *run) initrd(ctx context.Context, image Image) (string, error) {
	file := filepath.Join(r.dir, "initrd")
	cmd := exec.CommandContext(ctx, "bash", "-c", `set -e; cat "$1" >"$2"; truncate -s %4 "$2"; find bin | cpio -o -H newc -R 0:0 --quiet >>"$2"`, "initrd", image.Initrd, file)
	cmd.Dir = r.dir
	_, err := output(cmd)
	return file, err
}

// fill puts the job into the share and its programs beside it.
func (r *run) fill(job Job) error {
	if err := os.WriteFile(filepath.Join(r.share, "job"), []byte(job.Script+"\n"), 0o644); err != nil {
		return labFailed("write the job: %v", err)
	}
	if err := os.WriteFile(filepath.Join(r.share, "out"), nil, 0o644); err != nil {
		return labFailed("write the job: %v", err)
	}
	if job.Root != "" {
		if err := r.fillRoot(job.Root); err != nil {
			return err
		}
	}
	for _, f := range job.Files {
		data, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(r.share, filepath.Base(f)), data, 0o644)
		}
		if err != nil {
			return labFailed("copy a file for the guest: %v", err)
		}
	}
	for _, b := range job.Bin {
		data, err := os.ReadFile(b)
		if err == nil {
			err = os.WriteFile(filepath.Join(r.dir, "bin", filepath.Base(b)), data, 0o755)
		}
		if err != nil {
			return labFailed("copy a program for the guest: %v", err)
		}
	}
	return nil
}

// rootUnit runs the job in a system with an init of its own.
const rootUnit = `[Unit]
Description=the lab's job
After=multi-user.target
[Service]
Type=exec
WorkingDirectory=/share
StandardInput=null
StandardOutput=append:/share/out
StandardError=append:/share/out
ExecStart=/bin/bash -c "/bin/bash /share/job; echo $$? >/share/rc; echo o >/proc/sysrq-trigger"
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Install]
WantedBy=multi-user.target
`

// fillRoot links the archive into the share and adds the unit that runs the job.
func (r *run) fillRoot(root string) error {
	dir, err := os.MkdirTemp(r.dir, "root.")
	if err != nil {
		return labFailed("prepare the guest's root: %v", err)
	}
	units, wants := filepath.Join(dir, "etc/systemd/system"), filepath.Join(dir, "etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return labFailed("prepare the guest's root: %v", err)
	}
	if err := os.WriteFile(filepath.Join(units, "lab-job.service"), []byte(rootUnit), 0o644); err != nil {
		return labFailed("prepare the guest's root: %v", err)
	}
	if err := os.Symlink("../lab-job.service", filepath.Join(wants, "lab-job.service")); err != nil {
		return labFailed("prepare the guest's root: %v", err)
	}
	// No udev tells systemd of the console: a getty on it would be waited for, a minute and a half.
	if err := os.Symlink("/dev/null", filepath.Join(units, "serial-getty@ttyS0.service")); err != nil {
		return labFailed("prepare the guest's root: %v", err)
	}
	_, err = output(exec.Command("bash", "-c", `set -e; cp "$1" "$2"; tar rf "$2" --owner=0 --group=0 -C "$3" etc`, "root", root, filepath.Join(r.share, "root.tar"), dir))
	return err
}

// connect makes the sender's side of the wires.
func (r *run) connect() error {
	if err := r.ns.ip([]string{"link", "set", "lo", "up"}); err != nil {
		return err
	}
	if r.machine.NIC == "none" {
		return nil
	}
	for p := range r.machine.Ports {
		tap, add := tapName(p), []string{"tuntap", "add", tapName(p), "mode", "tap"}
		if r.machine.multiQueue() {
			add = append(add, "multi_queue")
		}
		err := r.ns.ip(add,
			[]string{"addr", "add", fmt.Sprintf("10.77.%d.1/24", p), "dev", tap},
			[]string{"link", "set", tap, "up"},
			[]string{"neigh", "add", fmt.Sprintf("10.77.%d.2", p), "lladdr", mac(p), "dev", tap})
		if err != nil {
			return err
		}
	}
	return nil
}

// boot runs QEMU, serves the guest's requests and reads what it left.
func (r *run) boot(ctx context.Context, image Image, job Job) (*Result, error) {
	limit := job.Timeout
	if limit == 0 {
		limit = 5 * time.Minute
	}
	initrd, err := r.initrd(ctx, image)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	var qemuErr strings.Builder
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", r.machine.qemuArgs(image.Kernel, initrd, r.dir)...)
	qemu.Stderr = &qemuErr
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.ns.start(qemu); err != nil {
		return nil, labFailed("start QEMU: %v", err)
	}
	serve, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return r.serve(serve) })
	if job.Output != nil {
		g.Go(func() error { return follow(serve, filepath.Join(r.share, "out"), job.Output) })
	}
	qemuExit := qemu.Wait()
	stop()
	if err := g.Wait(); err != nil {
		return nil, err
	}
	res := &Result{Took: time.Since(start)}
	if err := r.collect(res); err != nil {
		return nil, err
	}
	rc, err := strconv.Atoi(strings.TrimSpace(string(res.Files["rc"])))
	if err != nil {
		return nil, r.noStatus(ctx, res, limit, qemuExit, qemuErr.String())
	}
	res.Status = rc
	return res, nil
}

var panicLine = regexp.MustCompile(`Kernel panic - not syncing:.*`)

// brokeDown reports whether the emulated machine broke down (both seen with
// multi-threaded TCG, see README.md): QEMU aborted on an assertion of its own, or the guest
// ran code that its kernel had patched back already.
func brokeDown(console string, exit error) bool {
	return exit != nil && exit.Error() == "signal: aborted" || strings.Contains(console, "Oops: int3")
}

// noStatus says why a guest left no exit status.
func (r *run) noStatus(ctx context.Context, res *Result, limit time.Duration, exit error, stderr string) *Failure {
	log := "--- the guest's console, its end:\n" + lastLines(res.Console, 30)
	if res.Output != "" {
		log += "\n--- the job's output, its end:\n" + lastLines(res.Output, 30)
	}
	switch p := panicLine.FindString(res.Console); {
	case p != "":
		return &Failure{Code: ExitLab, Line: fmt.Sprintf("guest %s panicked: %s", r.machine, strings.TrimSpace(p)), Log: log, emulation: brokeDown(res.Console, exit)}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Failure{Code: ExitTimeout, Line: fmt.Sprintf("guest %s hung: killed after %v", r.machine, limit), Log: log}
	case ctx.Err() != nil:
		return &Failure{Code: ExitLab, Line: "interrupted"}
	case exit != nil:
		return &Failure{Code: ExitLab, Line: fmt.Sprintf("QEMU failed for %s: %v", r.machine, exit), Log: lastLines(stderr, 15) + "\n" + log, emulation: brokeDown(res.Console, exit)}
	}
	return &Failure{Code: ExitLab, Line: fmt.Sprintf("guest %s powered off before its job ended", r.machine), Log: log}
}

// collect reads the files that the guest left.
func (r *run) collect(res *Result) error {
	console, err := os.ReadFile(filepath.Join(r.dir, "console"))
	if err != nil && !os.IsNotExist(err) {
		return labFailed("read the console: %v", err)
	}
	res.Console = string(console)
	files, err := os.ReadDir(r.share)
	if err != nil {
		return labFailed("read the share: %v", err)
	}
	res.Files = map[string][]byte{}
	for _, f := range files {
		if !f.Type().IsRegular() || f.Name() == "root.tar" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(r.share, f.Name()))
		if err != nil {
			return labFailed("read the share: %v", err)
		}
		res.Files[f.Name()] = b
	}
	res.Output = string(res.Files["out"])
	return nil
}

// pollEvery is how often the share is looked at: 9p brings no notifications.
const pollEvery = 50 * time.Millisecond

// serve runs the guest's requests (req/N.cmd) in the sender's namespace until ctx ends,
// then kills what still runs. Each has a PID namespace of its own, so that with its shell
// everything that it started dies.
func (r *run) serve(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		requests, _ := filepath.Glob(filepath.Join(r.share, "req", "*.cmd")) // the pattern is well formed
		for _, f := range requests {
			base := strings.TrimSuffix(f, ".cmd")
			if err := os.Rename(f, base+".run"); err != nil {
				return labFailed("serve the guest: %v", err)
			}
			out, err := os.Create(base + ".out")
			if err != nil {
				return labFailed("serve the guest: %v", err)
			}
			cmd := exec.CommandContext(ctx, "bash", base+".run")
			cmd.Stdout, cmd.Stderr = out, out
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"))
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWPID}
			if err := r.ns.start(cmd); err != nil {
				out.Close()
				return labFailed("run the guest's request: %v", err)
			}
			running.Go(func() {
				defer out.Close()
				err := cmd.Wait()
				code := cmd.ProcessState.ExitCode()
				if err != nil && code < 0 {
					code = ExitLab // killed
				}
				if os.WriteFile(base+".tmp", []byte(strconv.Itoa(code)), 0o644) == nil {
					os.Rename(base+".tmp", base+".rc") // the guest may be gone: nobody to tell
				}
			})
		}
	}
}

// follow copies a growing file until ctx ends, then what is left of it.
func follow(ctx context.Context, file string, w io.Writer) error {
	f, err := os.Open(file)
	if err != nil {
		return labFailed("follow the job's output: %v", err)
	}
	defer f.Close()
	for {
		if _, err := io.Copy(w, f); err != nil {
			return labFailed("follow the job's output: %v", err)
		}
		select {
		case <-ctx.Done():
			_, err := io.Copy(w, f)
			if err != nil {
				return labFailed("follow the job's output: %v", err)
			}
			return nil
		case <-time.After(pollEvery):
		}
	}
}
