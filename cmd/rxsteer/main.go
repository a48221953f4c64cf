// Command rxsteer finds the queue, interrupt, CPU or flow on which the receive
// path of a Linux host loses time, says why, and fixes it as a transaction.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker (see Makefile).
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, newEnv())
	stop()
	os.Exit(code)
}
