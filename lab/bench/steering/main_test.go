package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/lab/bench/steering/outcome"
	"github.com/rxsteer/rxsteer/lab/scenarios"
)

func TestParseKeepsTheLastRowOfEachArm(t *testing.T) {
	got := parse("== 3.1 set\nrow: {\"scenario\":\"c\",\"arm\":\"rsspp\",\"drops\":2}\nrow: {\"arm\":\"static\",\"failed\":\"no time\"}\n" +
		"row: {\"scenario\":\"c\",\"arm\":\"rsspp\",\"drops\":3}\nrow: {cut off")
	want := map[string]outcome.Row{"rsspp": {Scenario: "c", Arm: "rsspp", Drops: 3}, "static": {Arm: "static", Failed: "no time"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
}

func TestEveryBenchIsAScenarioOfTheLab(t *testing.T) {
	for _, b := range benches {
		s, err := scenarios.Find(b.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Issue != b.Letter {
			t.Errorf("%s: letter %s, the lab's is %s", b.Name, b.Letter, s.Issue)
		}
		script := b.script(s, []string{"nothing", "rsspp"}, 90*time.Second)
		for _, want := range append([]string{"rxbenchsteerer -arms nothing,rsspp -scenario " + b.Letter + " ", " -left 1m30s", s.Traffic[0]}, s.Set...) {
			if !strings.Contains(script, want) {
				t.Errorf("%s: the script has no %q:\n%s", b.Name, want, script)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)(?:^|host_bg ')(rx[a-z]+) `).FindAllStringSubmatch(script, -1) {
			if programs[m[1]] == "" {
				t.Errorf("%s: the script runs %s, which guests are not given", b.Name, m[1])
			}
		}
	}
}
