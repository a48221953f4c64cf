package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

//go:embed image.sh
var imageLife string

// runImage builds the image of the Dockerfile by buildah and runs it by podman, on this host and without a network.
func runImage(ctx context.Context, args []string) error {
	if len(args) > 0 {
		return flag.ErrHelp
	}
	return withLab(ctx, func(l *lab) ([]line, error) { return l.image(ctx) })
}

func (l *lab) image(ctx context.Context) ([]line, error) {
	start := time.Now()
	row := line{"image", "this host", "built offline, run, scraped", "pass", 0}
	begin(row.what, row.machine)
	err := l.imageLife(ctx)
	row.took = time.Since(start)
	return row.of(err)
}

func (l *lab) imageLife(ctx context.Context) error {
	if err := l.cache.Install(ctx, "buildah", "podman", "runc", "curl"); err != nil {
		return err
	}
	root, err := l.cache.Root(ctx)
	if err != nil {
		return err
	}
	store, release, err := l.cache.Folder()
	if err != nil {
		return err
	}
	defer release()
	cmd := exec.CommandContext(ctx, "bash", "-c", imageLife, "image", store, root)
	said := &labelled{name: "image"}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its container
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		code := qemu.ExitLab
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == qemu.ExitAssertion {
			code = qemu.ExitAssertion
		}
		return &qemu.Failure{Code: code, Line: fmt.Sprintf("the image: %v", err)}
	}
	return nil
}
