package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/collector/record"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

func recordCommand(e *env) *cobra.Command {
	var (
		file     string
		interval time.Duration
		m        measureFlags
	)
	c := &cobra.Command{
		Use:   "record -w FILE",
		Short: "Write what is measured and set to a file that every reader takes",
		Long: `Write a sample per second, and what is set at the beginning and whenever it
changes, to a file. Every command that measures reads it with --from, anywhere, and
says what it would have said live.

The file is on disk second by second: when the machine or this program dies, all but
the last second can be read, and the reader says that it was cut off. Ctrl-C ends a
recording early and well. "zcat FILE | jq" reads it too (docs/json.md). It holds
addresses of the busiest connections; rxsteer bundle --mask leaves them out.`,
		Example: `  rxsteer record -w night.rxrec --for 10m
  rxsteer diagnose --from night.rxrec
  zcat night.rxrec | jq -c 'select(.sample) | [.sample.end, .sample.devices]'`,
		GroupID: groupServe,
		Args:    cobra.NoArgs,
	}
	c.Flags().StringVarP(&file, "write", "w", "", "write the recording to `FILE`")
	if err := c.MarkFlagRequired("write"); err != nil {
		panic(err) // the flag is the line above
	}
	c.Flags().DurationVar(&m.duration, "for", time.Minute, "record for this `TIME`")
	c.Flags().DurationVar(&interval, "interval", time.Second, "take a sample every `TIME`")
	addLevel(c, &m.level)
	addOverhead(c, &m.overhead)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := m.check(); err != nil {
			return err
		}
		if interval < 100*time.Millisecond || interval > m.duration {
			return usage("--interval %v: want 100ms … %v", interval, m.duration)
		}
		return e.record(c.Context(), file, &m, interval)
	}
	return c
}

func (e *env) record(ctx context.Context, file string, m *measureFlags, interval time.Duration) (err error) {
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	if _, err := h.inventory(ctx); err != nil {
		return err
	}
	states, err := e.openStates(ctx)
	if err != nil {
		return err
	}
	defer states.host.close()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	name, _ := os.Hostname() // "" where the kernel does not tell
	w, err := record.NewWriter(f, record.Header{
		Program: versionText(), Host: states.last.Snapshot.Host, Name: name, Started: e.now().UTC(), Interval: interval, Level: m.level.highest(), Overhead: float64(m.overhead),
	})
	if err != nil {
		return err
	}
	if err := w.State(states.last); err != nil {
		return err
	}
	samples := 0
	err = e.stream(ctx, h, m, interval, "recording", nil, func(s *collector.Sample) error {
		samples++
		if err := w.Sample(s); err != nil {
			return err
		}
		if s.End.Sub(states.last.At) < settingsAge {
			return nil
		}
		return states.next(ctx, w)
	})
	// A person's Ctrl-C ends a recording, it does not spoil it.
	stopped := ctx.Err() != nil && errors.Is(err, ctx.Err()) && samples > 0
	if err != nil && !stopped {
		return err
	}
	if err := states.next(context.WithoutCancel(ctx), w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "Wrote %s: %s%s\nRead it with: rxsteer diagnose --from %s\n", file, plural(samples, "sample"), map[bool]string{true: ", stopped early"}[stopped], file)
	return err
}

// settingsAge is how often the settings are looked at during a recording: a look takes 40 ms.
const settingsAge = 30 * time.Second

// states reads what the host is and what is set, beside a sampler: by sockets of its own.
type states struct {
	host *hostRooms
	now  func() time.Time
	last *record.State
	text []byte // of what is not settings
}

func (e *env) openStates(ctx context.Context) (*states, error) {
	h, err := e.openHost()
	if err != nil {
		return nil, err
	}
	s := &states{host: h, now: e.now}
	if s.last, s.text, err = s.read(ctx); err != nil {
		h.close()
		return nil, err
	}
	return s, nil
}

func (s *states) read(ctx context.Context) (*record.State, []byte, error) {
	st := &record.State{At: s.now().UTC()}
	var err error
	if st.NICs, err = s.host.inventory(ctx); err != nil {
		return nil, nil, err
	}
	if st.Topology, err = s.host.topology(); err != nil {
		return nil, nil, err
	}
	if st.Snapshot, err = s.host.machine.Snapshot(ctx); err != nil {
		return nil, nil, fmt.Errorf("read settings: %w", err)
	}
	if st.Snapshot.Owners, err = s.host.owners(ctx, st.NICs); err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal([]any{st.NICs, st.Topology, st.Snapshot.Devices, st.Snapshot.Owners})
	return st, text, err
}

// next writes the state where it is another.
func (s *states) next(ctx context.Context, w *record.Writer) error {
	st, text, err := s.read(ctx)
	if err != nil {
		return err
	}
	was := s.last
	s.last = st
	if bytes.Equal(text, s.text) && len(knob.Diff(was.Snapshot, st.Snapshot)) == 0 {
		return nil
	}
	s.text = text
	return w.State(st)
}
