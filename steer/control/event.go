package control

import (
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Event is one thing the machine is told. At most one of the pointers is set; an event without any only lets time pass.
type Event struct {
	At time.Duration `json:"at_ns"` // monotonic, since the loop began; never goes back
	// Open says that changes are allowed at this hour, Risks what the hour grants besides the devices' policies.
	Open  bool        `json:"open"`
	Risks []plan.Risk `json:"risks,omitempty"`

	Tick   *collector.Tick `json:"tick,omitempty"`
	Window *Window         `json:"window,omitempty"`
	Look   *Look           `json:"look,omitempty"`
	Done   *Done           `json:"done,omitempty"`
	Config *Config         `json:"config,omitempty"`
}

// Window is a device's packets by bucket, watched because the machine asked (Watch).
type Window struct {
	Device  string   `json:"device"`
	IfIndex int      `json:"ifindex"`
	Table   []int    `json:"table"` // as it was read before
	Buckets []uint64 `json:"buckets"`
	Cores   []int    `json:"cores"`        // physical core by CPU, -1 not told
	Never   []int    `json:"no,omitempty"` // CPUs no work may go to
	// Error says why there is no window; Off that there will be none on this host.
	Error string `json:"error,omitempty"`
	Off   bool   `json:"off,omitempty"`
}

// Look is what is set and what a plan under the policy would change.
type Look struct {
	Devices  []plan.Device  `json:"devices"`
	Settings []knob.Setting `json:"settings"` // that can be written
	Owners   []knob.Owner   `json:"owners,omitempty"`
	Changes  []plan.Change  `json:"changes"`
	Reasons  []string       `json:"reasons,omitempty"`
}

// Done is what became of a Write, a Confirm or an Undo.
type Done struct {
	IfIndex int            `json:"ifindex"`
	TX      string         `json:"tx,omitempty"`
	Written bool           `json:"written"` // something was written and read back
	Waits   bool           `json:"waits"`   // for Confirm or Undo
	Undone  bool           `json:"undone"`
	Moved   []knob.Ref     `json:"moved,omitempty"` // somebody else had set these in between
	Wrote   []knob.Setting `json:"wrote,omitempty"` // what is set now by us
	Why     string         `json:"why,omitempty"`
	Locked  bool           `json:"locked,omitempty"` // another rxsteer is at work
	Error   string         `json:"error,omitempty"`
	Took    time.Duration  `json:"took_ns,omitempty"`
	// Parts of Took, by their word: PartOpen, PartCheck, PartWrite.
	Parts map[string]time.Duration `json:"parts_ns,omitempty"`
}

// Parts of a reaction, in order: until the skew was borne out, until the window was in, until the best table was found and the
// write begun, until the journal was open, until all was checked, until the table was written and read back.
const (
	PartSuspect = "suspect"
	PartWindow  = "window"
	PartDecide  = "decide"
	PartOpen    = "open"
	PartCheck   = "check"
	PartWrite   = "write"
)

// ReactionParts is all of them.
var ReactionParts = []string{PartSuspect, PartWindow, PartDecide, PartOpen, PartCheck, PartWrite}

// Verb is what the machine wants done.
type Verb string

const (
	Watch   Verb = "watch"   // count a device's packets by bucket for Action.For, answer with a Window
	Write   Verb = "write"   // make Changes as one transaction, answer with Done
	Confirm Verb = "confirm" // keep transaction TX, answer with Done
	Undo    Verb = "undo"    // roll transaction TX back, answer with Done
)

// Action is one thing the machine wants done. There is one at a time for a device.
type Action struct {
	Verb    Verb          `json:"verb"`
	Device  string        `json:"device"`
	IfIndex int           `json:"ifindex"`
	For     time.Duration `json:"for_ns,omitempty"`
	Changes []plan.Change `json:"changes,omitempty"`
	// Fast transactions wait for the machine's own judgement; others are judged by the transaction itself.
	Fast bool   `json:"fast,omitempty"`
	TX   string `json:"tx,omitempty"`
}

// What was decided.
const (
	Suspected = "suspect"     // counters show a skew
	Settled   = "no gain"     // nothing that would help enough
	Advised   = "advise"      // would have changed
	Refused   = "not allowed" // by hour, risk or number of changes
	Wrote     = "write"
	WroteDone = "written"
	Kept      = "keep"
	Reverted  = "revert"
	Yielded   = "yield"
	Resumed   = "resume"
	Failed    = "fail"
	Changed   = "device changed"
	Degraded  = "degraded"
	Reloaded  = "reload"
)

// Verdicts is all words of decisions, for metrics that are there from the start.
var Verdicts = []string{Suspected, Settled, Advised, Refused, Wrote, WroteDone, JudgedFine, JudgedWorse, Kept, Reverted, Yielded, Resumed, Failed, Changed, Degraded, Reloaded}

// Decision is one step of the loop, with its numbers. It is made once.
type Decision struct {
	At      time.Duration     `json:"at_ns"`
	Device  string            `json:"device,omitempty"`
	What    string            `json:"what"`
	Why     string            `json:"why"`
	Numbers diagnose.Evidence `json:"numbers,omitempty"`
}
