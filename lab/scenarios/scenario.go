package scenarios

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

//go:embed *.yaml
var files embed.FS

// Scenario is one file. Lines of Set, Meanwhile and Act are bash in the guest, with the
// functions of guest.sh; those of Traffic are bash in the sender's namespace.
type Scenario struct {
	Name    string       `yaml:"-"`     // of the file
	Issue   string       `yaml:"issue"` // the letter in the list of issue 3, "" for others
	What    string       `yaml:"what"`  // one sentence
	Machine qemu.Machine `yaml:"machine"`

	Set     []string `yaml:"set"`     // before any traffic; a failing line ends the scenario
	Sink    string   `yaml:"sink"`    // receives in the guest, in the background, and says "ready" on stderr; rxtraffic recv on port 9000 when empty
	Traffic []string `yaml:"traffic"` // all at once, until the end
	BurnUs  float64  `yaml:"burn_us"` // burn per packet at eth0's ingress, 0 none
	Probe   bool     `yaml:"probe"`   // a flow's round trips beside the facts: the documents before_probe and after_probe
	// Meanwhile starts in the background with diagnose.
	Meanwhile []string      `yaml:"meanwhile"`
	Measure   time.Duration `yaml:"measure"`  // how long facts are taken, then diagnose looks; 4s when 0
	Goal      string        `yaml:"goal"`     // of plan; auto when empty
	Allow     string        `yaml:"allow"`    // of apply; reorder when empty
	Diagnose  string        `yaml:"diagnose"` // further arguments of diagnose and plan
	// Act replaces plan and apply: it does what only this scenario needs. Each *.json that it
	// leaves in /share is a document for the assertions.
	Act []string `yaml:"act"`

	Facts    []string `yaml:"facts"`     // assertions, see expr.go
	Found    []string `yaml:"found"`     // "RX203", "RX203 eth0" or an assertion
	NotFound []string `yaml:"not_found"` // "RX101"
	// Also are findings that may be there beside those of Found, of no more than info: RX901 always may. Anything
	// else that diagnose finds fails a scenario that says what must or must not be found.
	Also     []string          `yaml:"also"`     // "RX208"
	Planned  []string          `yaml:"planned"`  // assertions
	Achieved []string          `yaml:"achieved"` // assertions
	Pending  map[string]string `yaml:"pending"`  // section → subject of the issue that brings it

	Timeout time.Duration `yaml:"timeout"` // of the guest; 6m when 0
	// Lasts is seconds in $LASTS, for what goes on as long as one likes; the guest may take that much longer than Timeout.
	Lasts time.Duration `yaml:"lasts"`
	CI    bool          `yaml:"ci"` // part of make check
}

// sections are the parts of a judgement, in order.
var sections = []string{"facts", "found", "planned", "achieved"}

// All reads every scenario, by issue letter, then name.
func All() ([]Scenario, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var out []Scenario
	for _, n := range names {
		text, err := files.ReadFile(n)
		if err != nil {
			return nil, err
		}
		s, err := Parse(n, text)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b Scenario) int { return strings.Compare(a.Issue, b.Issue) })
	return out, nil
}

// Find returns the scenario of a name.
func Find(name string) (Scenario, error) {
	all, err := All()
	if err != nil {
		return Scenario{}, err
	}
	var names []string
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("no scenario %q: there are %s", name, strings.Join(names, ", "))
}

var findingID = regexp.MustCompile(`^RX[0-9]{3}( [^ ]+)?$`)

// Parse reads a scenario; unknown keys and malformed assertions are errors that show the line.
func Parse(file string, text []byte) (Scenario, error) {
	s := Scenario{Name: strings.TrimSuffix(filepath.Base(file), ".yaml"), Measure: 4 * time.Second, Timeout: 6 * time.Minute}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&s); err != nil {
		return s, fmt.Errorf("parse scenario %s: %w", file, err)
	}
	fail := func(format string, args ...any) (Scenario, error) {
		return s, fmt.Errorf("parse scenario %s: %s", file, fmt.Sprintf(format, args...))
	}
	if s.What == "" {
		return fail("no what: one sentence that says what it is")
	}
	if len(s.Facts) == 0 {
		return fail("no facts: nothing would show that the machine is in the state it describes")
	}
	if len(s.Act) > 0 && len(s.Planned) > 0 {
		return fail("act replaces plan and apply: planned has nothing to look at")
	}
	for section := range s.Pending {
		if !slices.Contains(sections, section) || section == "facts" {
			return fail("pending %s: not one of found, planned, achieved", section)
		}
		if len(s.section(section)) == 0 {
			return fail("pending %s: that section is empty", section)
		}
	}
	for _, id := range s.NotFound {
		if !findingID.MatchString(id) {
			return fail("not_found %q: not a finding", id)
		}
	}
	for _, id := range s.Also {
		if !findingID.MatchString(id) {
			return fail("also %q: not a finding", id)
		}
	}
	for _, section := range sections {
		for _, line := range s.section(section) {
			if section == "found" && findingID.MatchString(strings.TrimPrefix(line, "no ")) {
				continue
			}
			if _, err := parseAssertion(line); err != nil {
				return fail("%s: %v", section, err)
			}
		}
	}
	return s, nil
}

// section is the lines of a section; what must not be found belongs to found.
func (s *Scenario) section(name string) []string {
	switch name {
	case "facts":
		return s.Facts
	case "found":
		out := slices.Clone(s.Found)
		for _, id := range s.NotFound {
			out = append(out, "no "+id)
		}
		return out
	case "planned":
		return s.Planned
	default:
		return s.Achieved
	}
}
