package main

import (
	"context"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

var ciTruth = []qemu.Machine{}

func fullTruth() []qemu.Machine { return nil }

func runTruth(ctx context.Context, args []string) error { return nil }

func (l *lab) truth(ctx context.Context, machines []qemu.Machine) error { return nil }
