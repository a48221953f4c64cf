package apply

import (
	"context"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// Host is the part of a host that a transaction needs; knob.Machine is one.
type Host interface {
	// Snapshot reads everything that is set.
	Snapshot(ctx context.Context) (*knob.Snapshot, error)
	// Read reads one setting; what cannot be read is an unknown or absent Value.
	Read(ctx context.Context, ref knob.Ref) knob.Value
	// Write sets one setting from a value it is expected to have.
	Write(ctx context.Context, ref knob.Ref, from, to knob.Value) error
}

// Sampler measures for d and returns what it saw.
type Sampler func(ctx context.Context, d time.Duration) (*collector.Sample, error)

// State is the state of a transaction. No other exists on disk.
type State string

const (
	Planned     State = "planned"
	Journalled  State = "journalled"
	Applying    State = "applying"
	Unconfirmed State = "unconfirmed"
	Kept        State = "kept"
	RolledBack  State = "rolled back"
	Partial     State = "partial" // the world changed; what could not be restored is listed
)
