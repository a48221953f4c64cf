package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/lab/bench/steering/outcome"
)

func TestParse(t *testing.T) {
	got, err := parse([]byte("{\"state\":\"skewed\",\"arm\":\"rsspp\",\"drops\":3}\n{\"arm\":\"static\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]outcome.Row{{State: "skewed", Arm: "rsspp", Drops: 3}, {Arm: "static"}}, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
	for _, bad := range []string{"", "{", "nonsense"} {
		if rows, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q: rows %v, want an error", bad, rows)
		}
	}
}

func TestScriptNamesArms(t *testing.T) {
	s := script("nothing,rsspp")
	for _, want := range []string{"rxbenchsteerer -arms nothing,rsspp >rows.json", "--flows 64 --elephants 4 --share 0.5 --rate 2000", "rxburn --us 60 "} {
		if !strings.Contains(s, want) {
			t.Errorf("the script has no %q:\n%s", want, s)
		}
	}
}
