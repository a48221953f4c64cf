package diagnose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// ID names a finding ("RX101"). It never changes meaning.
type ID string

// Severity orders findings.
type Severity int

const (
	Info Severity = iota
	Warning
	Critical
)

var severityNames = [...]string{"info", "warning", "critical"}

func (s Severity) String() string {
	if s < 0 || int(s) >= len(severityNames) {
		return fmt.Sprintf("severity(%d)", int(s))
	}
	return severityNames[s]
}

// ParseSeverity reads "info", "warning" or "critical" (a --fail-on value).
func ParseSeverity(text string) (Severity, error) {
	for i, n := range severityNames {
		if n == text {
			return Severity(i), nil
		}
	}
	return 0, fmt.Errorf("parse severity %q: want info, warning or critical", text)
}

func (s Severity) MarshalText() ([]byte, error) {
	if s < 0 || int(s) >= len(severityNames) {
		return nil, fmt.Errorf("severity %d does not exist", int(s))
	}
	return []byte(s.String()), nil
}

func (s *Severity) UnmarshalText(b []byte) (err error) {
	*s, err = ParseSeverity(string(b))
	return err
}

// Fact is one number or word of evidence. The name ends in its unit where it
// has one: _ratio (0…1), _per_s, _ns, _s; CPU sets are list text.
type Fact struct {
	Name  string
	Value any // float64, int, uint64, bool or string
}

// Text is the value for people: ratios as percent, rates without fractions.
func (f Fact) Text() string {
	v, ok := f.Value.(float64)
	switch {
	case !ok:
		return fmt.Sprint(f.Value)
	case hasSuffix(f.Name, "_ratio"):
		return strconv.FormatFloat(v*100, 'f', 1, 64) + " %"
	case hasSuffix(f.Name, "_per_s"):
		return strconv.FormatFloat(v, 'f', 0, 64) + "/s"
	default:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
}

func hasSuffix(s, suffix string) bool {
	return len(s) >= len(suffix) && s[len(s)-len(suffix):] == suffix
}

// Evidence is facts in the order in which they make the case; JSON is one
// object in that order. Floats are rounded to four significant places of a ratio (1e-4),
// so that two runs over one input are equal byte for byte on every machine.
type Evidence []Fact

func (e Evidence) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range e {
		if i > 0 {
			b.WriteByte(',')
		}
		v := f.Value
		if x, ok := v.(float64); ok {
			v = math.Round(x*1e4) / 1e4
		}
		k, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		j, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode evidence %s: %w", f.Name, err)
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(j)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Get returns the value of a fact, nil when it is not part of the evidence.
func (e Evidence) Get(name string) any {
	for _, f := range e {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Finding is one thing that is wrong, or weakens what can be said.
type Finding struct {
	ID       ID       `json:"id"`
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // interface name, "cpu 3", or "host"
	Summary  string   `json:"summary"`
	Evidence Evidence `json:"evidence"`
	Remedy   string   `json:"remedy"`
	// RuledOut are the other explanations that were checked and do not hold, as sentences.
	RuledOut []string `json:"ruled_out,omitempty"`
	// Explains are the symptoms this cause produces; they are not findings of
	// their own, and removing the cause is expected to remove them.
	Explains []Symptom `json:"explains,omitempty"`
	// Queues is each receive queue's part of the device's packets, where one stands out.
	Queues []float64 `json:"queue_share_ratios,omitempty"`
	// Level is 2 where packets were looked at for it, else 0: the report's level is enough.
	Level int `json:"level,omitempty"`
	// Site is where it is, for plan.
	Site Site `json:"-"`
}

// Symptom is a finding that a root cause explains.
type Symptom struct {
	ID       ID       `json:"id"`
	Subject  string   `json:"subject"`
	Summary  string   `json:"summary"`
	Evidence Evidence `json:"evidence"`
}

// Site says where a finding is, in terms that need no parsing.
type Site struct {
	Device string
	Queues []int // rx queues that carry the load, sorted
	CPU    int   // the hot CPU, -1 none
	// Movable is the receive work of the device that RPS can place, by the CPU
	// that does it now, in CPUs (1 = one CPU's whole time).
	Movable map[int]float64
	// Demand ≥ 1 scales Movable up to what was offered where packets were dropped
	// for want of time.
	Demand float64
	// PollCPUs are the CPUs that poll the device; they keep the driver's part.
	PollCPUs []int
	// IRQs are the vectors at fault.
	IRQs []int
	// Flows are the flow types whose hash fields are at fault ("udp4").
	Flows []string
	// Sends is the packets per second the device transmits.
	Sends float64
	// Near is the CPUs the queues are better handled on, empty any.
	Near cpuset.Set
	// Knobs are the settings of a device that are at fault.
	Knobs []knob.Kind
}

// Unmeasured is something this report could not look at.
type Unmeasured struct {
	What    string `json:"what"`
	Why     string `json:"why"`
	Weakens string `json:"weakens,omitempty"` // which conclusions
}

// Report is the outcome of a diagnosis.
type Report struct {
	IntervalS float64 `json:"interval_s"`
	Level     int     `json:"level"` // collector.Sample.Level
	// Closer is why level 2 was climbed to meanwhile, and CloserS for how much of the interval; "" where it was not.
	Closer  string  `json:"closer_look,omitempty"`
	CloserS float64 `json:"closer_look_s,omitempty"`
	// SinceBoot and Untimed are collector.Sample's: the counters of one look, and an interval that is made up.
	SinceBoot bool      `json:"since_boot,omitempty"`
	Untimed   bool      `json:"untimed,omitempty"`
	Findings  []Finding `json:"findings"`
	// Checked is what was looked at and found in order, as sentences.
	Checked    []string     `json:"checked"`
	Unmeasured []Unmeasured `json:"unmeasured"`
	// Loads is each CPU's time in the interval, and Named the interfaces asked for with those they stand on.
	Loads []Load   `json:"cpus"`
	Named []string `json:"-"`
}

// Worst returns the highest severity, false when there is no finding.
func (r *Report) Worst() (Severity, bool) {
	if len(r.Findings) == 0 {
		return 0, false
	}
	w := Info
	for _, f := range r.Findings {
		w = max(w, f.Severity)
	}
	return w, true
}

// Load is what one CPU did with an interval, as parts of it (0…1).
type Load struct {
	CPU   int     `json:"cpu"`
	NetRX float64 `json:"receive_ratio"` // receive softirq
	Other float64 `json:"other_ratio"`   // everything else that is not idle: tasks, interrupts, other softirqs
	Idle  float64 `json:"idle_ratio"`
	Steal float64 `json:"stolen_ratio"`
	// Packets per second through this CPU's stack.
	Packets float64 `json:"packets_per_s"`
}
