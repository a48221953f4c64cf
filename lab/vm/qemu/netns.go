package qemu

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// netns is a network namespace without a name, held by one locked OS thread. Processes
// started on that thread live in it and, with a parent-death signal, die with it.
type netns struct {
	calls chan func()
	done  chan struct{}
}

func newNetns() (*netns, error) {
	n := &netns{calls: make(chan func()), done: make(chan struct{})}
	ready := make(chan error)
	go func() {
		defer close(n.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		ready <- err
		if err != nil {
			return
		}
		for f := range n.calls {
			f()
		}
	}()
	if err := <-ready; err != nil {
		<-n.done
		return nil, labFailed("make a network namespace: %v", err)
	}
	return n, nil
}

// do runs f on the namespace's thread.
func (n *netns) do(f func() error) error {
	err := make(chan error, 1)
	n.calls <- func() { err <- f() }
	return <-err
}

// start starts a command in the namespace; it is killed when this process dies.
func (n *netns) start(cmd *exec.Cmd) error { return n.do(cmd.Start) }

// ip runs iproute2's ip with each line of arguments.
func (n *netns) ip(lines ...[]string) error {
	for _, args := range lines {
		err := n.do(func() error {
			_, err := output(exec.Command("ip", args...))
			return err
		})
		if err != nil {
			return fmt.Errorf("ip %v: %w", args, err)
		}
	}
	return nil
}

// close ends the thread. Processes started on it get their parent-death signal.
func (n *netns) close() {
	close(n.calls)
	<-n.done
}
