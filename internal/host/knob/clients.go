package knob

import (
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// What the knobs need of the kernel, one small interface per family, so that
// a fake host can implement them. Errors are those of package ethtool and
// netdev: errors.Is against their sentinels tells absent from refused.

// ChannelsClient reads and writes queue counts. Groups: rx tx other combined.
type ChannelsClient interface {
	Channels(dev string) (now, limit ethtool.Group, err error)
	SetChannels(dev string, changed ethtool.Group) error
}

// RingsClient reads and writes ring sizes.
type RingsClient interface {
	Rings(dev string) (now, limit ethtool.Group, err error)
	SetRings(dev string, changed ethtool.Group) error
}

// CoalesceClient reads and writes interrupt moderation.
type CoalesceClient interface {
	Coalesce(dev string) (ethtool.Group, error)
	SetCoalesce(dev string, changed ethtool.Group) error
	// QueueCoalesce reads queues 0 … n−1.
	QueueCoalesce(dev string, n int) ([]ethtool.Group, error)
	SetQueueCoalesce(dev string, queue int, changed ethtool.Group) error
}

// RSSClient reads and writes receive-side scaling.
type RSSClient interface {
	// RSS reads every context, the default one (0) first.
	RSS(dev string) ([]ethtool.RSS, error)
	SetRSS(dev string, context uint32, change ethtool.RSSChange) error
	CreateRSS(dev string, context uint32, table []int) error
	DeleteRSS(dev string, context uint32) error
	HashFields(dev, flow string) (string, error)
	SetHashFields(dev, flow, fields string) error
}

// RulesClient reads and writes ntuple rules.
type RulesClient interface {
	Rules(dev string) ([]ethtool.Rule, error)
	InsertRule(dev string, r ethtool.Rule) error
	DeleteRule(dev string, location uint32) error
}

// FeaturesClient reads and writes offloads.
type FeaturesClient interface {
	Features(dev string) (ethtool.Features, error)
	SetFeatures(dev string, changed map[string]bool) error
}

// LinkClient reads and writes what concerns the wire.
type LinkClient interface {
	Pause(dev string) (ethtool.Group, error)
	SetPause(dev string, changed ethtool.Group) error
	FEC(dev string) (ethtool.FEC, error)
	SetFEC(dev string, fec ethtool.FEC) error
}

// FlagsClient reads and writes a driver's private flags.
type FlagsClient interface {
	PrivateFlags(dev string) (map[string]bool, error)
	SetPrivateFlags(dev string, changed map[string]bool) error
}

// InfoClient identifies driver and link.
type InfoClient interface {
	Driver(dev string) (ethtool.Driver, error)
	Link(dev string) (ethtool.Link, error)
}

// Ethtool is all that; *ethtool.Client is one.
type Ethtool interface {
	ChannelsClient
	RingsClient
	CoalesceClient
	RSSClient
	RulesClient
	FeaturesClient
	LinkClient
	FlagsClient
	InfoClient
}

// Netdev reads and writes NAPI settings; *netdev.Client is one.
type Netdev interface {
	// NAPIs lists the NAPI instances of a device, by id.
	NAPIs(ifindex int) ([]netdev.NAPI, error)
	SetNAPI(id uint32, changed netdev.NAPIChange) error
}

// Vectors tells which interrupts belong to a device, ascending; the map of
// internal/host/nic is better than the default, which reads msi_irqs and the
// action names under /proc/irq.
type Vectors interface {
	Vectors(device string) ([]int, error)
}
