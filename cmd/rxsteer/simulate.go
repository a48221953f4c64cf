package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pcap "github.com/rxsteer/rxsteer/internal/capture"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
	"github.com/rxsteer/rxsteer/steer/simulate"
)

func simulateCommand(e *env) *cobra.Command {
	s := simulate.Setting{}
	var key string
	c := &cobra.Command{
		Use:   "simulate CAPTURE",
		Short: "Show how a card would spread a capture's traffic, and the best table for it",
		Long: `Read a packet capture (pcap or pcapng, "-" is standard input) and show what receive-side
scaling would do with its packets: which queue gets how many under the table that names the
queues in turn, and under the best table there is; what cannot be spread, and the biggest
flows. Nothing of this host is read.

Key and fields are a card's: ethtool -x and ethtool -n show them. Without --key it is the
key that several drivers have as default.`,
		Example: `  tcpdump -i eth0 -w load.pcap -c 100000 -s 96
  rxsteer simulate load.pcap --queues 8 --table 128
  rxsteer simulate load.pcap --fields sd      # what if ports were not hashed
  rxsteer simulate load.pcap -o json | jq -c .best.table`,
		GroupID: groupSteer,
		Args:    cobra.ExactArgs(1),
	}
	c.Flags().IntVar(&s.Queues, "queues", 8, "receive queues, `N`")
	c.Flags().IntVar(&s.Table, "table", 128, "entries of the indirection table, `N`")
	c.Flags().StringVar(&key, "key", "", "Toeplitz key as `HEX`, with or without colons")
	c.Flags().StringVar(&s.Fields, "fields", "sdfn", "what is hashed of TCP and UDP: `LETTERS` of s, d (addresses), f, n (ports)")
	out := addOutput(c, "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		s.Key = toeplitz.MicrosoftKey
		if key != "" {
			var err error
			if s.Key, err = hex.DecodeString(strings.ReplaceAll(key, ":", "")); err != nil {
				return usage("--key %s: want hexadecimal bytes, as in 6d:5a:56:da", key)
			}
		}
		if err := s.Check(); err != nil {
			return usage("%v", err)
		}
		return e.simulate(c.Context(), args[0], s, out)
	}
	return c
}

func (e *env) simulate(ctx context.Context, file string, s simulate.Setting, out *output) error {
	in, size := io.Reader(os.Stdin), int64(0)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("open capture: %w", err)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil {
			size = st.Size()
		}
		in = f
	}
	counted := &counter{ctx: ctx, r: in}
	sim := simulate.New(s)
	bar := e.newOpenProgress("reading " + file)
	err := pcap.Read(bufio.NewReaderSize(counted, 1<<20), func(p pcap.Packet, i pcap.Info) {
		sim.Add(p, i.Length)
		select {
		case <-bar.tick():
			if bar.live = short(float64(counted.n)) + "B"; size > 0 {
				bar.live = percent(float64(counted.n) / float64(size))
			}
			bar.draw()
		default:
		}
	})
	bar.end()
	cut := errors.Is(err, pcap.ErrCutShort)
	if err != nil && !cut {
		return &failure{exitFailed, fmt.Errorf("%s: %w", file, err), []string{"simulate takes what tcpdump -w and Wireshark write: pcap or pcapng of Ethernet, Linux cooked or raw IP"}}
	}
	searching, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := sim.Result(searching)
	if err != nil {
		return err
	}
	if cut {
		wrap(e.stderr, e.textWidth(), "! ", "  ", fmt.Sprintf("%s is cut short: what follows is of the %s before", file, plural(int(r.Packets), "packet")))
	}
	if out.format == "json" {
		return printJSON(e.stdout, r)
	}
	printSimulation(e.stdout, r, s, e.palette(), e.textWidth())
	return nil
}

// counter counts what is read, until ctx ends.
type counter struct {
	ctx context.Context
	r   io.Reader
	n   int64
}

func (c *counter) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

func printSimulation(w io.Writer, r *simulate.Result, s simulate.Setting, p palette, width int) {
	if r.Packets == 0 {
		fmt.Fprintln(w, "The capture holds no packets.")
		return
	}
	flows := plural(r.Flows, "flow")
	if r.FlowsLeftOut {
		flows = "more than " + flows
	}
	wrap(w, width, "", "", fmt.Sprintf("%s of %s over %s, a table of %s, hash fields %q.",
		plural(int(r.Packets), "packet"), flows, plural(s.Queues, "queue"), plural(s.Table, "entry"), s.Fields))
	fmt.Fprintln(w)
	share := func(n uint64) string { return percent(float64(n) / float64(r.Packets)) }
	t := newTable("", ">queue", ">packets in turn", ">share", ">best", ">share")
	for q := range r.Default.Packets {
		t.row(fmt.Sprint(q), fmt.Sprint(r.Default.Packets[q]), share(r.Default.Packets[q]), fmt.Sprint(r.Best.Packets[q]), share(r.Best.Packets[q]))
	}
	t.print(w, p)
	fmt.Fprintln(w)
	known := "the search was ended: a better one may exist"
	if r.Optimal {
		known = "no table does better"
	}
	wrap(w, width, "", "", fmt.Sprintf("With the queues in turn the busiest queue gets %s of the packets, with the best table %s (%s moved; %s). A fair share is %s.",
		percent(r.Default.Share), percent(r.Best.Share), plural(r.Moves, "entry"), known, percent(1/float64(s.Queues))))
	if r.Unhashed > 0 {
		wrap(w, width, "! ", "  ", fmt.Sprintf("%s of the packets have no hash and come to one queue, here 0: see the classes.", share(r.Unhashed)))
	}
	fmt.Fprintln(w)
	t = newTable("", "class", ">packets", ">share", ">bytes")
	for _, c := range r.Classes {
		name := c.Class
		if c.VLAN {
			name += " (VLAN)"
		}
		t.row(name, fmt.Sprint(c.Packets), share(c.Packets), fmt.Sprint(c.Bytes))
	}
	t.print(w, p)
	if len(r.Top) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = newTable("", "flow", "", "", ">packets", ">share", ">entry", "queue")
	for _, f := range r.Top {
		queue := fmt.Sprint(r.Best.Table[f.Bucket])
		if f.Elephant {
			queue += "  elephant: above a fair share, no table helps"
		}
		t.row(f.Protocol, f.Source.String(), f.Destination.String(), fmt.Sprint(f.Packets), percent(f.Share), fmt.Sprint(f.Bucket), queue)
	}
	t.print(w, p)
}
