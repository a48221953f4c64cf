package apply

import (
	"context"
	"errors"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Host is the part of a host that a transaction needs; *knob.Machine is one.
type Host interface {
	// Identity tells which host this is, in which boot and network namespace.
	Identity(ctx context.Context) (knob.Identity, error)
	// Snapshot reads everything that is set, of all devices when none is named.
	Snapshot(ctx context.Context, devices ...string) (*knob.Snapshot, error)
	// Read reads one setting; what cannot be read is an unknown or absent Value.
	Read(ctx context.Context, ref knob.Ref) knob.Value
	// Write sets one setting if it still has the value from.
	Write(ctx context.Context, ref knob.Ref, from, to knob.Value) error
}

// Sampler measures for d and returns what it saw.
type Sampler func(ctx context.Context, d time.Duration) (*collector.Sample, error)

// State is the state of a transaction. No other exists on disk.
type State string

const (
	Planned     State = "planned"
	Journalled  State = "journalled"
	Applying    State = "applying" // writing, or putting back
	Unconfirmed State = "unconfirmed"
	Kept        State = "kept"
	RolledBack  State = "rolled back"
	Partial     State = "partial" // the world changed; what could not be restored is listed
)

// Errors a caller may act on.
var (
	ErrLocked     = errors.New("another rxsteer is at work")
	ErrNewer      = errors.New("written by a newer rxsteer")
	ErrIdentity   = errors.New("the plan was made for something else")
	ErrRisk       = errors.New("risk not allowed")
	ErrStale      = errors.New("settings changed since the plan was made")
	ErrUnfinished = errors.New("an earlier transaction is unfinished")
	ErrNoSuch     = errors.New("no such transaction")
)

// Config is what an Engine works with.
type Config struct {
	Dir  string // of the journal; "" is DefaultDir
	Host Host
	// Sample measures before and after; nil applies without a verdict.
	Sample Sampler
	// Now is the wall clock, Uptime the time since boot that confirmation deadlines count in, so
	// that a clock step neither shortens nor extends them. nil are the system's.
	Now    func() time.Time
	Uptime func() time.Duration
	// Around sees memory, carrier, addresses and routes, Vectors the map of interrupts. Without
	// them nothing of that is checked.
	Around  Surroundings
	Vectors Vectors
	// Owners tells who else writes settings here; asked only when somebody did.
	Owners func(context.Context) ([]knob.Owner, error)
	// Progress, when set, is told each step as it begins ("write rps-cpus of eth0 rx-0").
	Progress func(string)

	wrap func(disk) disk // tests: fails single journal writes
}

// DefaultDir is where the journal is: settings and journal die together at the end of the boot.
const DefaultDir = "/run/rxsteer"

// Options are what the user grants one transaction.
type Options struct {
	// Allow are the risks granted; nil is reorder only. NoRisk needs no grant.
	Allow []plan.Risk
	// ConfirmWithin > 0 leaves the transaction unconfirmed and overdue after that long.
	ConfirmWithin time.Duration
	// Windows of Window each are measured before and after; 0 are 5 of 1 s. The
	// first Settle (0: half a Window) after the last write is not judged.
	Windows int
	Window  time.Duration
	Settle  time.Duration
	// By is who asked for it, for the journal: "root (alice)", "agent".
	By string
	// Near looks only at the devices of the plan for what changed unasked. Base, when set, is a Snapshot of these that was
	// taken a moment ago: one older than a second is not used. Both are for Begin.
	Near bool
	Base *knob.Snapshot
	// BackWithin is how long a device whose link went down may take to come back; 0 is 30 s.
	BackWithin time.Duration
	// Begun, when set, is told the transaction's ID between its entry in the journal and its first
	// write. An error ends it with nothing changed.
	Begun func(id string) error
}

// Result is what became of a transaction.
type Result struct {
	ID    string `json:"id"`
	State State  `json:"state"`
	// Why the state is what it is, in one sentence.
	Why   string `json:"why"`
	Steps []Step `json:"steps"`
	// Unasked are settings that changed although no change of the plan names them.
	Unasked []Unasked `json:"unasked"`
	// Judged are the verdicts on each step, Verdict that on all of them together.
	Judged  []Judged `json:"judged,omitempty"`
	Verdict *Verdict `json:"verdict,omitempty"`
	// Owners also write a setting that somebody else took: it is left to them, or settled as they say.
	Owners []knob.Owner `json:"owners,omitempty"`
	// Left are the settings that could not be put back.
	Left []Left `json:"left"`
	// Confirm is how long after now the transaction is undone unless confirmed.
	Confirm time.Duration `json:"confirm_within_ns,omitempty"`
}

// Outcome of one change.
type Outcome string

const (
	Applied  Outcome = "applied"
	Adjusted Outcome = "adjusted" // the kernel took less or rounded up
	Already  Outcome = "already"  // had the value before
	Stale    Outcome = "stale"    // somebody else moved it: not touched
	Failed   Outcome = "failed"
	Restored Outcome = "restored"
	Lost     Outcome = "not restored"
	Skipped  Outcome = "skipped" // never written
)

// Step is one change and what became of it.
type Step struct {
	knob.Ref
	From    knob.Value `json:"from"`
	To      knob.Value `json:"to"`
	Got     knob.Value `json:"got"` // read back
	Outcome Outcome    `json:"outcome"`
	Note    string     `json:"note,omitempty"`
}

// Judged is the verdict on one step: the changes of one setting of one device.
type Judged struct {
	Knob    knob.Kind `json:"knob"`
	Device  string    `json:"device,omitempty"` // "" the host's
	First   int       `json:"first"`            // index of its first change in Steps
	Count   int       `json:"count"`
	Verdict *Verdict  `json:"verdict"`
}

// Unasked is a setting that changed around our writes.
type Unasked struct {
	knob.Ref
	From    knob.Value `json:"from"`
	To      knob.Value `json:"to"`
	PutBack bool       `json:"put_back"`
	Note    string     `json:"note"`
}

// Left is a setting that does not have the value it had before.
type Left struct {
	knob.Ref
	Want knob.Value `json:"want"`
	Is   knob.Value `json:"is"`
	Why  string     `json:"why"`
}
