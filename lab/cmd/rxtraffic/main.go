// Command rxtraffic sends open-loop flows, counts what arrives of them and
// measures round trips; see package traffic.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

const usage = `Usage: rxtraffic COMMAND [flags]

  send   send flows at a rate the receiver has no say in
  recv   count what arrives of each flow, what is lost and how late; echo probes
  probe  send a probe flow to a recv and take the percentiles of its round trips

Every run is bounded by --for or --count; an interrupt ends it early and still
prints the result. Results are text, or JSON with --json; progress is on stderr.
recv says "rxtraffic: ready" on stderr when it listens. Exit: 0 done, 1 failed,
2 usage. rxtraffic COMMAND --help lists the flags.

  rxtraffic recv --listen 10.0.0.2:9000 --for 12s --json &
  rxtraffic send --to 10.0.0.2:9000 --rate 20000 --flows 64 --for 10s
  rxtraffic send --to 10.0.0.2:9000 --rate 20000 --flows 64 --elephants 1 --share 0.5 --for 10s
  rxtraffic send --to 10.0.0.2:9000 --rate 5000 --dev eth0 --from 10.0.0.1 --dst-mac 52:54:00:77:00:02 \
      --encap vxlan --outer-from 192.0.2.1 --outer-to 192.0.2.2 --for 5s
  rxtraffic probe --to 10.0.0.2:9000 --rate 200 --for 10s
`

var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "rxtraffic:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "rxtraffic:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return fmt.Errorf("%w: no command", errUsage)
	}
	c := command{ctx: ctx, stdout: stdout, stderr: stderr, flags: flag.NewFlagSet("rxtraffic "+args[0], flag.ContinueOnError)}
	c.flags.SetOutput(stderr)
	c.asJSON = c.flags.Bool("json", false, "print the result as JSON")
	switch args[0] {
	case "send":
		return c.send(args[1:])
	case "recv":
		return c.recv(args[1:])
	case "probe":
		return c.probe(args[1:])
	case "help", "--help", "-help", "-h":
		fmt.Fprint(stdout, usage)
		return nil
	}
	fmt.Fprint(stderr, usage)
	return fmt.Errorf("%w: unknown command %q", errUsage, args[0])
}

// command is what the subcommands share.
type command struct {
	ctx            context.Context
	stdout, stderr io.Writer
	flags          *flag.FlagSet
	asJSON         *bool
}

// parse reads the flags; none of the commands takes other arguments.
func (c *command) parse(args []string) error {
	if err := c.flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %s", errUsage, err)
	}
	if c.flags.NArg() > 0 {
		return fmt.Errorf("%w: unexpected argument %q", errUsage, c.flags.Arg(0))
	}
	return nil
}

// print writes the result as JSON or as text.
func (c *command) print(result any, text func(w io.Writer)) error {
	if *c.asJSON {
		return json.NewEncoder(c.stdout).Encode(result)
	}
	var b strings.Builder
	text(&b)
	_, err := io.WriteString(c.stdout, b.String())
	return err
}
