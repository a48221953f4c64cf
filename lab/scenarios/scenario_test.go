package scenarios

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryScenarioOfTheIssueIsWritten(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	letters := map[string]bool{}
	for _, s := range all {
		letters[s.Issue] = true
	}
	for c := 'a'; c <= 'r'; c++ {
		if !letters[string(c)] {
			t.Errorf("scenario (%c) of issue 3 is missing", c)
		}
	}
}

func TestParseRefusesWhatWouldNotBeJudged(t *testing.T) {
	const good = "what: x\nfacts: [before.rx.total > 1]\nfound: [RX101]\n"
	if _, err := Parse("good.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":              {good + "fonud: [RX101]\n", "fonud"},
		"unknown machine key":      {good + "machine: {cpus: 4}\n", "cpus"},
		"no sentence":              {"facts: [a == 1]\n", "no what"},
		"no facts":                 {"what: x\n", "no facts"},
		"pending an empty section": {good + "pending: {planned: later}\n", "empty"},
		"pending facts":            {good + "pending: {facts: later}\n", "pending facts"},
		"unknown operator":         {good + "planned: [plan.x ~ 3]\n", "operator"},
		"no operator":              {good + "planned: [plan.x]\n", "no operator"},
		"broken path":              {good + "planned: ['plan..x == 3']\n", "cannot read"},
		"a finding that is none":   {good + "not_found: [RX1]\n", "not a finding"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("x.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	files := map[string][]byte{
		"before.json": []byte(`{"rx":{"max_share":0.98,"by":[1,97]}}`),
		"report.json": []byte(`{"findings":[{"id":"RX203","severity":"warning","subject":"eth0","summary":"ports are left out"}]}`),
	}
	facts := []string{"before.rx.max_share >= 0.95"}
	for name, c := range map[string]struct {
		s       Scenario
		verdict Verdict
		failed  []string
	}{
		"all holds":              {Scenario{Facts: facts, Found: []string{"RX203 eth0"}, NotFound: []string{"RX101"}}, Pass, nil},
		"a fact is not so":       {Scenario{Facts: []string{"before.rx.by[1] < 90"}}, Fail, []string{"facts: before.rx.by[1] < 90: it is 97"}},
		"wrong subject":          {Scenario{Facts: facts, Found: []string{"RX203 eth1"}}, Fail, []string{`found: RX203 eth1 was not found: there are ["RX203 eth0"]`, "found: RX203 warning eth0 was found and is not expected: ports are left out"}},
		"beyond what is named":   {Scenario{Facts: facts, NotFound: []string{"RX101"}}, Fail, []string{"found: RX203 warning eth0 was found and is not expected: ports are left out"}},
		"a warning is no also":   {Scenario{Facts: facts, NotFound: []string{"RX101"}, Also: []string{"RX203"}}, Fail, []string{"found: RX203 warning eth0 was found and is not expected: ports are left out"}},
		"no finding is expected": {Scenario{Facts: facts, Found: []string{"report.findings exists"}}, Pass, nil},
		"must not be found":      {Scenario{Facts: facts, NotFound: []string{"RX203"}}, Fail, []string{"found: RX203 was found and must not be"}},
		"pending and fails":      {Scenario{Facts: facts, Found: []string{"RX999"}, Pending: map[string]string{"found": "later"}}, Pending, nil},
		"pending and passes": {Scenario{Name: "x", Facts: facts, Found: []string{"RX203"}, Pending: map[string]string{"found": "later"}}, XPass,
			[]string{`found passes, but is marked pending for "later": remove that line from lab/scenarios/x.yaml`}},
		"a command failed": {Scenario{Facts: facts, Planned: []string{"plan.changes.# == 1"}}, Fail,
			[]string{"planned: plan.changes.# == 1: the left side is absent", "rxsteer gave no plan: exit 2: unknown command"}},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.s.Planned) > 0 {
				files["plan.rc"], files["plan.err"] = []byte("2\n"), []byte("unknown command\n")
			}
			o := &Outcome{Scenario: c.s, Sections: map[string]Verdict{}}
			judge(o, documents(files), files)
			delete(files, "plan.rc")
			if o.Verdict != c.verdict {
				t.Errorf("verdict %s, want %s", o.Verdict, c.verdict)
			}
			if diff := cmp.Diff(c.failed, o.Failed); diff != "" {
				t.Errorf("failed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAssertions(t *testing.T) {
	docs := documents(map[string][]byte{"d.json": []byte(`{"n":5,"half":2.5,"s":"sdfn","list":[3,"x",{"k":"a","v":1},{"k":"b c","v":2}],"null":null}`)})
	for text, want := range map[string]string{
		"d.n == 5":                           "",
		"d.n != 5":                           "d.n != 5: it is 5",
		"d.n > 1 * d.half":                   "",
		"d.n > 2 * d.half":                   "d.n > 2 * d.half: it is 5 against 5",
		"d.list.# == 4":                      "",
		"d.list[0] == 3":                     "",
		"d.list[k=b c].v == 2":               "",
		"d.list[k=z] absent":                 "",
		"d.list[k=a] absent":                 `d.list[k=a] absent: it is {"k":"a","v":1}`,
		"d.list has \"x\"":                   "",
		"d.s has \"df\"":                     "",
		"d.s == \"sdfn\"":                    "",
		"d.s >= 3":                           `d.s >= 3: it is "sdfn"`,
		"d.none == 1":                        "d.none == 1: the left side is absent",
		"d.none absent":                      "",
		"d.null exists":                      "",
		"d.n == d.none":                      "d.n == d.none: the right side is absent",
		"d.list[9] exists":                   "d.list[9] exists: it is absent",
		"d.list == [3]":                      `d.list == [3]: it is [3,"x",{"k":"a","v":1},{"k":"b c","v":2}]`,
		"d.n <= 4":                           "d.n <= 4: it is 5",
		"d.list[2] == {\"v\":1,\"k\":\"a\"}": "",
	} {
		a, err := parseAssertion(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := ""
		if err := a.check(docs); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestScriptIsValidShell(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		f := t.TempDir() + "/script"
		if err := os.WriteFile(f, []byte(s.script()), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := shellCheck(f); err != nil {
			t.Errorf("%s: %v: %s", s.Name, err, out)
		}
	}
}

// shellCheck has bash parse a script without running it.
func shellCheck(file string) (string, error) {
	out, err := exec.Command("bash", "-n", file).CombinedOutput()
	return string(out), err
}
