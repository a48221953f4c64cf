package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
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
	m := qemu.Machine{MemMB: 2048, SMP: 2, Queues: 2}
	old := set.String("old", "", "the deb to begin with")
	next := set.String("new", "", "the deb to upgrade to")
	set.StringVar(&m.NIC, "nic", "igb", "igb, virtio or vmxnet3")
	if err := set.Parse(args); err != nil || set.NArg() > 0 || *old == "" || *next == "" {
		return flag.ErrHelp
	}
	l, err := openLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	root, err := l.cache.Root(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rxlab-package")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	job := qemu.Job{Script: packageLife, Root: root, Output: os.Stdout, Timeout: 15 * time.Minute,
		// The package brings rxsteer itself.
		Bin: slices.DeleteFunc(slices.Clone(l.bin), func(b string) bool {
			return filepath.Base(b) == "rxsteer" || !strings.HasPrefix(filepath.Base(b), "rx")
		})}
	for name, deb := range map[string]string{"old.deb": *old, "new.deb": *next} {
		b, err := os.ReadFile(deb)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			return &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("read the package: %v", err)}
		}
		job.Files = append(job.Files, filepath.Join(dir, name))
	}
	res, err := l.cache.Boot(ctx, m, job)
	if err != nil {
		return err
	}
	if res.Status != 0 {
		return &qemu.Failure{Code: qemu.ExitAssertion, Line: fmt.Sprintf("the package's life ended with status %d", res.Status)}
	}
	fmt.Printf("%s: installed, killed, upgraded and removed under systemd, %.1f s\n", machine(m), res.Took.Seconds())
	return nil
}
