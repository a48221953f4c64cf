package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

//go:embed package.sh
var packageLife string

// runPackage installs, kills, upgrades and removes the deb in a guest that systemd boots.
func runPackage(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("package", flag.ContinueOnError)
	var m qemu.Machine
	set.StringVar(&m.NIC, "nic", "igb", "igb, virtio or vmxnet3")
	if err := set.Parse(args); err != nil || set.NArg() > 0 {
		return flag.ErrHelp
	}
	return withLab(ctx, func(l *lab) ([]line, error) { return l.packages(ctx, m) })
}

func (l *lab) packages(ctx context.Context, m qemu.Machine) ([]line, error) {
	m.MemMB, m.SMP, m.Queues = 2048, 2, 2 // the root is in memory
	row := line{"package", machine(m), "installed, killed, upgraded and removed under systemd", "pass", 0}
	begin(row.what, row.machine)
	res, err := l.packageLife(ctx, m)
	if err == nil {
		row.took = res.Took
		if res.Status != 0 {
			err = &qemu.Failure{Code: qemu.ExitAssertion, Line: fmt.Sprintf("the package's life ended with status %d", res.Status)}
		}
	}
	return row.of(err)
}

// packageLife boots a Debian with two versions of the package beside it.
func (l *lab) packageLife(ctx context.Context, m qemu.Machine) (*qemu.Result, error) {
	root, err := l.cache.Root(ctx)
	if err != nil {
		return nil, err
	}
	dir, release, err := l.cache.Folder()
	if err != nil {
		return nil, err
	}
	defer release()
	job := qemu.Job{Script: packageLife, Root: root, Output: &labelled{name: "package"}, Timeout: 20 * time.Minute,
		// The package brings rxsteer itself.
		Bin: slices.DeleteFunc(slices.Clone(l.bin), func(b string) bool { return filepath.Base(b) == "rxsteer" })}
	for name, version := range map[string]string{"old.deb": "v0.0.1", "new.deb": "v0.0.2"} {
		file := filepath.Join(dir, name)
		if err := makeDeb(ctx, version, file); err != nil {
			return nil, err
		}
		job.Files = append(job.Files, file)
	}
	return l.cache.Boot(ctx, m, job)
}

// makeDeb makes the package of these sources as a release makes it, and moves it to file.
func makeDeb(ctx context.Context, version, file string) error {
	cmd := exec.CommandContext(ctx, "make", "package", "ARCHS=amd64", "VERSION="+version, "DIST="+file+".d")
	if log, err := cmd.CombinedOutput(); err != nil {
		return &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("make package: %v", err), Log: string(log)}
	}
	deb := filepath.Join(file+".d", "rxsteer_"+strings.TrimPrefix(version, "v")+"_amd64.deb")
	if err := os.Rename(deb, file); err != nil {
		return &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("find the package: %v", err)}
	}
	return nil
}
