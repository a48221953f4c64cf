// Command rxbuckets prints, in a lab guest, what level 2 sees of an interface: a collector.DeviceBuckets of a window,
// and of an interval the top flows, the stages, the links that traffic has shown against those that the driver's names
// and netlink tell, and the pacing of its interrupts against the kernel's count of them, as one JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/sockdiag"
)

func main() {
	dev := flag.String("dev", "eth0", "interface")
	interval := flag.Duration("for", 2*time.Second, "how long to watch")
	usecs := flag.Int64("usecs", 0, "rx-usecs to hold the interrupts against")
	flag.Parse()
	if err := run(*dev, *interval, *usecs); err != nil {
		fmt.Fprintln(os.Stderr, "rxbuckets:", err)
		os.Exit(1)
	}
}

func run(dev string, interval time.Duration, usecs int64) (err error) {
	fs := host.OS{}
	c, err := ethtool.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := knob.Open(knob.Config{FS: fs, Ethtool: c})
	if err != nil {
		return err
	}
	ctx := context.Background()
	settings, err := m.Snapshot(ctx, dev)
	if err != nil {
		return err
	}
	rss, ok := collector.RSSOf(settings, dev)
	if !ok {
		return fmt.Errorf("no interface %s", dev)
	}
	s := collector.New(collector.Config{FS: fs, Level: 2, PacketRate: 64, RSS: func() []collector.RSS { return []collector.RSS{rss} }, Sockets: sockdiag.Sockets})
	sample, err := s.Sample(ctx, interval)
	if err != nil {
		return err
	}
	vectors, err := receiveVectors(fs, dev)
	if err != nil {
		return err
	}
	links, err := compareLinks(sample, rss.IfIndex, vectors)
	if err != nil {
		return err
	}
	b, err := s.Buckets(ctx, rss, interval)
	if err != nil {
		return err
	}
	return errors.Join(s.CloseBuckets(), json.NewEncoder(os.Stdout).Encode(struct {
		*collector.DeviceBuckets
		Table      []int                  `json:"table"`
		Sampled    []collector.Flow       `json:"flows"`
		Unmeasured []collector.Unmeasured `json:"unmeasured"`
		Links      Links                  `json:"links"`
		Pacing     Pacing                 `json:"pacing"`
		Stages     map[string]uint64      `json:"stages"` // packets or runs timed of the interface, by stage
		Cost       *collector.Cost        `json:"cost"`
	}{b, rss.Table, sample.Flows, sample.Unmeasured, links, pacingOf(sample, rss.IfIndex, vectors, usecs), stagesOf(sample, rss.IfIndex), sample.Cost}))
}
