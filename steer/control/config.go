package control

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/strictyaml"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Mode is what the loop may do.
type Mode string

const (
	Off    Mode = "off"    // measure and serve only
	Advise Mode = "advise" // plan and say, write nothing
	Auto   Mode = "auto"   // write, judge, undo
)

// OnStop is what becomes of what the loop changed when it is told to stop.
type OnStop string

const (
	Keep    OnStop = "keep"
	Restore OnStop = "restore"
)

// Config is the policy of an agent, as its file says with defaults filled in.
type Config struct {
	Mode     Mode
	Interval time.Duration // of a sample and of a look at settings and findings
	Level    int           // highest attention level
	Overhead float64       // share of each CPU that measuring may take, 0 unlimited but for following packets
	OnStop   OnStop
	Device   Device   // what holds for every device
	Devices  []Device // by name; with their own values or those of Device filled in
	// Change are the hours in which something may be written, none: always. Critical are those in which a dropped
	// packet is worth waking somebody.
	Change, Critical []Hours
	Zone             *time.Location
	Limits           Limits
	Metrics          Metrics
	Baseline         string // file of settings that should be, "" none
	Profile          bool   // serve /profile
	Pprof            bool   // serve /debug/pprof
}

// Device is the policy for one device.
type Device struct {
	Name   string
	Mode   Mode
	Goal   plan.Goal
	Risks  []plan.Risk
	Policy plan.Policy // Knobs is never empty
}

// allows reports whether a setting may be written at all.
func (d *Device) allows(k knob.Kind) bool {
	return slices.Contains(d.Policy.Knobs, k) && !slices.Contains(d.Policy.Never, k)
}

// Hours is a part of each of some weekdays. To before From ends on the next day.
type Hours struct {
	Days     [7]bool // by time.Weekday
	From, To int     // minutes since midnight; equal: the whole day
	Risks    []plan.Risk
}

// Limits keep the loop calm.
type Limits struct {
	Changes   int           // transactions per minute and device
	Gain      float64       // least predicted fall of the hottest CPU, in parts of its time
	Busy      float64       // a CPU below this share is no reason to do anything
	Persist   int           // looks in a row that must agree before a change of the slow path
	CoolDown  time.Duration // after a change
	BackOff   time.Duration // the longest cool-down that repeated changes lead to
	Yield     time.Duration // a setting somebody else wrote is left alone so long; 0: for good
	Judge     time.Duration // measured before and after a change of the slow path, each
	FastJudge time.Duration // and after a move of the fast path
}

// Metrics bound what is exported.
type Metrics struct {
	Series    int  // label sets of each family that grows with the host
	Elephants int  // flows by name
	Native    bool // native histograms besides the classic ones
	Stages    bool
	PerCPU    bool // NAPI figures by CPU, too
}

// Default is the configuration of an agent without a file: it measures and serves, and writes nothing.
func Default() *Config {
	return &Config{
		Mode: Off, Interval: 10 * time.Second, Level: 2, Overhead: 0.01, OnStop: Keep, Zone: time.Local, Profile: true,
		Device: Device{Mode: Off, Goal: plan.Auto, Policy: plan.Policy{Knobs: slices.Clone(defaultKnobs)}, Risks: []plan.Risk{plan.Reorder}},
		Limits: Limits{Changes: 6, Gain: 0.1, Busy: 0.2, Persist: 3, CoolDown: 5 * time.Second, BackOff: 10 * time.Minute,
			Yield: time.Hour, Judge: 5 * time.Second, FastJudge: 2 * time.Second},
		Metrics: Metrics{Series: 2048, Elephants: 16, Stages: true, PerCPU: true},
	}
}

// defaultKnobs are settings that no traffic stops for.
var defaultKnobs = []knob.Kind{knob.RSSTable, knob.IRQAffinity, knob.RPSCPUs, knob.RPSFlowCnt, knob.XPSCPUs}

// For is the policy of a device: its own where the file names it. Others are advised about and never written: which of
// them are management ports nobody told us.
func (c *Config) For(device string) (d Device, named bool) {
	if i := slices.IndexFunc(c.Devices, func(d Device) bool { return d.Name == device }); i >= 0 {
		return c.Devices[i], true
	}
	d = c.Device
	if d.Name = device; d.Mode == Auto {
		d.Mode = Advise
	}
	return d, false
}

// Open reports whether something may be changed at t, and which risks that hour grants besides the device's.
func (c *Config) Open(t time.Time) (bool, []plan.Risk) {
	if len(c.Change) == 0 {
		return true, nil
	}
	var risks []plan.Risk
	open := false
	for _, h := range c.Change {
		if h.has(t.In(c.Zone)) {
			open = true
			risks = append(risks, h.Risks...)
		}
	}
	return open, risks
}

// IsCritical reports whether t lies in the critical hours.
func (c *Config) IsCritical(t time.Time) bool {
	return slices.ContainsFunc(c.Critical, func(h Hours) bool { return h.has(t.In(c.Zone)) })
}

func (h Hours) has(t time.Time) bool {
	minute := t.Hour()*60 + t.Minute()
	today, yesterday := h.Days[t.Weekday()], h.Days[(t.Weekday()+6)%7]
	switch {
	case h.From == h.To:
		return today
	case h.From < h.To:
		return today && h.From <= minute && minute < h.To
	default:
		return today && minute >= h.From || yesterday && minute < h.To
	}
}

// The file as it is decoded.
type (
	file struct {
		Mode     Mode          `yaml:"mode"`
		Interval time.Duration `yaml:"interval"`
		Level    *int          `yaml:"level"`
		Overhead string        `yaml:"overhead"`
		OnStop   OnStop        `yaml:"on_stop"`
		Goal     plan.Goal     `yaml:"goal"`
		Risks    []plan.Risk   `yaml:"allow"`
		Policy   *plan.Policy  `yaml:"policy"`
		Devices  []fileDevice  `yaml:"devices"`
		Change   []hours       `yaml:"change_hours"`
		Critical []hours       `yaml:"critical_hours"`
		Zone     string        `yaml:"time_zone"`
		Limits   limits        `yaml:"limits"`
		Metrics  metrics       `yaml:"metrics"`
		Baseline string        `yaml:"baseline"`
		Profile  *bool         `yaml:"profile"`
		Pprof    bool          `yaml:"pprof"`
	}
	fileDevice struct {
		Name   string       `yaml:"name"`
		Mode   Mode         `yaml:"mode"`
		Goal   plan.Goal    `yaml:"goal"`
		Risks  []plan.Risk  `yaml:"allow"`
		Policy *plan.Policy `yaml:"policy"`
	}
	hours struct {
		Days  []string    `yaml:"days"`
		From  string      `yaml:"from"`
		To    string      `yaml:"to"`
		Risks []plan.Risk `yaml:"allow"`
	}
	limits struct {
		Changes   *int           `yaml:"changes_per_minute"`
		Gain      string         `yaml:"gain"`
		Busy      string         `yaml:"busy"`
		Persist   *int           `yaml:"persist"`
		CoolDown  *time.Duration `yaml:"cool_down"`
		BackOff   *time.Duration `yaml:"back_off"`
		Yield     *time.Duration `yaml:"yield"`
		Judge     *time.Duration `yaml:"judge"`
		FastJudge *time.Duration `yaml:"fast_judge"`
	}
	metrics struct {
		Series    *int  `yaml:"series"`
		Elephants *int  `yaml:"elephants"`
		Native    bool  `yaml:"native_histograms"`
		Stages    *bool `yaml:"stages"`
		PerCPU    *bool `yaml:"per_cpu"`
	}
)

// Parse reads a configuration strictly: errors say "name:line:column: what". cpus are those online here; empty does
// not check them.
func Parse(name string, data []byte, cpus cpuset.Set) (*Config, error) {
	f := file{Mode: Advise}
	doc, err := strictyaml.Decode(name, "configuration", data, &f)
	if err != nil {
		return nil, err
	}
	r := reader{c: Default(), cpus: cpus, at: doc.At}
	r.read(&f)
	if r.err != nil {
		return nil, r.err
	}
	return r.c, nil
}

// reader checks and fills in; the first thing wrong stays.
type reader struct {
	c    *Config
	cpus cpuset.Set
	at   func(path string, err error) error
	err  error
}

func (r *reader) wrong(path, format string, args ...any) {
	if r.err == nil {
		r.err = r.at(path, fmt.Errorf(format, args...))
	}
}

func (r *reader) read(f *file) {
	c := r.c
	c.Mode = f.Mode
	r.mode("$.mode", c.Mode)
	r.duration("$.interval", &c.Interval, f.Interval, time.Second, time.Hour)
	if f.Level != nil {
		if c.Level = *f.Level; c.Level < 0 || c.Level > 2 {
			r.wrong("$.level", "level %d: want 0, 1 or 2", c.Level)
		}
	}
	r.share("$.overhead", &c.Overhead, f.Overhead)
	switch f.OnStop {
	case "":
	case Keep, Restore:
		c.OnStop = f.OnStop
	default:
		r.wrong("$.on_stop", "on_stop %q: want keep or restore", f.OnStop)
	}
	r.policy("$", &c.Device, f.Goal, f.Risks, f.Policy)
	c.Device.Mode = c.Mode
	for i, d := range f.Devices {
		path := fmt.Sprintf("$.devices[%d]", i)
		out := c.Device
		out.Name, out.Mode = d.Name, c.Mode
		if d.Mode != "" {
			out.Mode = d.Mode
			r.mode(path+".mode", d.Mode)
		}
		if d.Name == "" || strings.ContainsAny(d.Name, " /") {
			r.wrong(path+".name", "name %q: want the name of an interface", d.Name)
		}
		if slices.ContainsFunc(c.Devices, func(o Device) bool { return o.Name == d.Name }) {
			r.wrong(path+".name", "%s is already there", d.Name)
		}
		r.policy(path, &out, d.Goal, d.Risks, d.Policy)
		c.Devices = append(c.Devices, out)
	}
	c.Change = r.hours("$.change_hours", f.Change)
	c.Critical = r.hours("$.critical_hours", f.Critical)
	if f.Zone != "" {
		z, err := time.LoadLocation(f.Zone)
		if err != nil {
			r.wrong("$.time_zone", "time_zone: %w", err)
		} else {
			c.Zone = z
		}
	}
	l, x := &c.Limits, &f.Limits
	r.number("$.limits.changes_per_minute", &l.Changes, x.Changes, 1, 60)
	r.share("$.limits.gain", &l.Gain, x.Gain)
	r.share("$.limits.busy", &l.Busy, x.Busy)
	r.number("$.limits.persist", &l.Persist, x.Persist, 1, 100)
	r.optional("$.limits.cool_down", &l.CoolDown, x.CoolDown, time.Second, 24*time.Hour)
	r.optional("$.limits.back_off", &l.BackOff, x.BackOff, time.Second, 24*time.Hour)
	r.optional("$.limits.yield", &l.Yield, x.Yield, 0, 30*24*time.Hour)
	r.optional("$.limits.judge", &l.Judge, x.Judge, time.Second, 10*time.Minute)
	r.optional("$.limits.fast_judge", &l.FastJudge, x.FastJudge, time.Second, 3*time.Second)
	if l.BackOff < l.CoolDown {
		r.wrong("$.limits.back_off", "back_off %v is shorter than cool_down %v", l.BackOff, l.CoolDown)
	}
	m, y := &c.Metrics, &f.Metrics
	r.number("$.metrics.series", &m.Series, y.Series, 16, 1<<20)
	r.number("$.metrics.elephants", &m.Elephants, y.Elephants, 0, 1024)
	m.Native = y.Native
	flag(&m.Stages, y.Stages)
	flag(&m.PerCPU, y.PerCPU)
	flag(&c.Profile, f.Profile)
	c.Pprof, c.Baseline = f.Pprof, f.Baseline
}

func flag(to *bool, from *bool) {
	if from != nil {
		*to = *from
	}
}

func (r *reader) mode(path string, m Mode) {
	switch m {
	case Off, Advise, Auto:
	default:
		r.wrong(path, "mode %q: want off, advise or auto", m)
	}
}

func (r *reader) policy(path string, d *Device, goal plan.Goal, risks []plan.Risk, p *plan.Policy) {
	switch goal {
	case "":
	case plan.Auto, plan.Throughput, plan.Latency, plan.Balanced:
		d.Goal = goal
	default:
		r.wrong(path+".goal", "goal %q: want auto, throughput, latency or balanced", goal)
	}
	if risks != nil {
		d.Risks = risks
		r.risks(path+".allow", risks, false)
	}
	if p == nil {
		return
	}
	path += ".policy"
	if err := p.Check(); err != nil {
		at := path
		if fe, ok := errors.AsType[*plan.FieldError](err); ok {
			at += "." + fe.Field
		}
		r.wrong(at, "%w", err)
		return
	}
	if len(p.Devices) > 0 {
		r.wrong(path+".devices", "devices have a list of their own here, outside of policy")
	}
	if !p.CPUs.IsEmpty() && !r.cpus.IsEmpty() && !p.CPUs.Intersects(r.cpus) {
		r.wrong(path+".cpus", "cpus %s: none of them is online here (%s are)", p.CPUs, r.cpus)
	}
	if len(p.Knobs) == 0 {
		p.Knobs = d.Policy.Knobs
	}
	d.Policy = *p
}

// risks checks grants. What takes the link away is only granted within hours that say so.
func (r *reader) risks(path string, risks []plan.Risk, within bool) {
	for i, k := range risks {
		switch k {
		case plan.Reorder:
		case plan.Pause, plan.Flap:
			if !within {
				r.wrong(fmt.Sprintf("%s[%d]", path, i), "%s is only allowed within change_hours: grant it there", k)
			}
		default:
			r.wrong(fmt.Sprintf("%s[%d]", path, i), "risk %q: want reorder, pause or flap", k)
		}
	}
}

var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func (r *reader) hours(path string, in []hours) []Hours {
	var out []Hours
	for i, h := range in {
		p := fmt.Sprintf("%s[%d]", path, i)
		o := Hours{From: r.clock(p+".from", h.From), To: r.clock(p+".to", h.To), Risks: h.Risks}
		for j, name := range h.Days {
			d := slices.Index(weekdays, strings.ToLower(name))
			if d < 0 {
				r.wrong(fmt.Sprintf("%s.days[%d]", p, j), "day %q: want %s", name, strings.Join(weekdays, ", "))
				continue
			}
			o.Days[d] = true
		}
		if len(h.Days) == 0 {
			o.Days = [7]bool{true, true, true, true, true, true, true}
		}
		r.risks(p+".allow", h.Risks, true)
		out = append(out, o)
	}
	return out
}

// clock reads "18:30" as minutes since midnight, "" as midnight and "24:00" as the end of the day.
func (r *reader) clock(path, text string) int {
	if text == "" || text == "24:00" {
		return 0
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		r.wrong(path, "time %q: want hours and minutes in quotes, like \"18:30\"", text)
		return 0
	}
	return t.Hour()*60 + t.Minute()
}

func (r *reader) number(path string, to *int, from *int, low, high int) {
	if from == nil {
		return
	}
	if *from < low || *from > high {
		r.wrong(path, "%d is outside %d…%d", *from, low, high)
	}
	*to = *from
}

func (r *reader) optional(path string, to *time.Duration, from *time.Duration, low, high time.Duration) {
	if from != nil {
		if *from < low || *from > high {
			r.wrong(path, "%v is outside %v…%v", *from, low, high)
		}
		*to = *from
	}
}

func (r *reader) duration(path string, to *time.Duration, from, low, high time.Duration) {
	if from != 0 {
		r.optional(path, to, &from, low, high)
	}
}

func (r *reader) share(path string, to *float64, text string) {
	if text == "" {
		return
	}
	v, err := parseShare(text)
	if err != nil {
		r.wrong(path, "%w", err)
		return
	}
	*to = v
}

// parseShare reads "1%" as 0.01.
func parseShare(text string) (float64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || v < 0 || v > 100 {
		return 0, errors.Join(fmt.Errorf("%q: want a share like 1%%", text))
	}
	return v / 100, nil
}
