package matrix

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

func answer(t *testing.T, text string) *Answer {
	t.Helper()
	var a Answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	return &a
}

const good = `{"kernel":"6.12.1","objects":{"rx":""},"hooks":[{"name":"napi_poll","live":true}],"rig":{"name":"igb","packets":200,"ratio":1.01,"fexit_ratio":0.99},"reader":{"sent":10,"seen":10,"right":10}}`

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string // of good
		want     []string
	}{
		"all is well":                 {"", "", nil},
		"object does not load":        {`"rx":""`, `"rx":"no BTF"`, []string{"object rx does not load: no BTF"}},
		"missing hook, named":         {`"live":true`, `"live":false,"why":"absent","lost":"polls"`, nil},
		"missing hook, not explained": {`"live":true`, `"live":false`, []string{"hook napi_poll is missing without a reason or without what is lost"}},
		"too much attributed":         {`"ratio":1.01`, `"ratio":1.05`, []string{"attributed/burnt is 1.050, want within 3 %"}},
		"too little":                  {`"ratio":1.01`, `"ratio":0.9`, []string{"attributed/burnt is 0.900, want within 3 %"}},
		"away from fexit":             {`"fexit_ratio":0.99`, `"fexit_ratio":0.9`, []string{"ours/fexit is 0.900, want within 3 %"}},
		"fexit does not load":         {`"fexit_ratio":0.99`, `"fexit_ratio":0,"no_fexit":"EPERM"`, nil},
		"a late read unseen":          {`"seen":10`, `"seen":8`, []string{"of 10 datagrams read after 0.1 s 8 were seen and 10 with that delay"}},
		"a late read timed wrong":     {`"right":10`, `"right":9`, []string{"of 10 datagrams read after 0.1 s 10 were seen and 9 with that delay"}},
		"nothing was read":            {`"sent":10,"seen":10,"right":10`, `"error":"no lo"`, []string{"the reader failed: no lo"}},
		"rig failed":                  {`"name":"igb"`, `"error":"no traffic"`, []string{"the rig failed: no traffic"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := row{answer: answer(t, strings.Replace(good, c.old, c.new, 1))}
			if diff := cmp.Diff(c.want, r.problems()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReportTellsUnavailableFromFailed(t *testing.T) {
	fine := row{machine: "igb", answer: answer(t, good)}
	bad := row{machine: "igb", answer: answer(t, strings.Replace(good, `"ratio":1.01`, `"ratio":2`, 1))}
	gone := row{machine: "igb", answer: &Answer{Kernel: "5.10"}, err: &qemu.Failure{Code: qemu.ExitUnavailable, Line: "gone"}}
	hung := row{machine: "igb", answer: &Answer{Kernel: "6.1"}, err: &qemu.Failure{Code: qemu.ExitTimeout, Line: "hung"}}
	odd := row{machine: "igb", answer: &Answer{Kernel: "6.1"}, err: errors.New("odd")}
	for name, c := range map[string]struct {
		rows []row
		want int
	}{
		"pass":                       {[]row{fine}, qemu.ExitPass},
		"a package is gone":          {[]row{fine, gone}, qemu.ExitPass},
		"a guest hung":               {[]row{fine, hung}, qemu.ExitTimeout},
		"the lab failed":             {[]row{odd, fine}, qemu.ExitLab},
		"a wrong answer comes first": {[]row{bad, hung}, qemu.ExitAssertion},
	} {
		t.Run(name, func(t *testing.T) {
			lines, err := report(c.rows)
			if len(lines) != len(c.rows) {
				t.Errorf("%d lines of %d machines", len(lines), len(c.rows))
			}
			if got := qemu.ExitCode(err); got != c.want {
				t.Errorf("exit code %d, want %d", got, c.want)
			}
		})
	}
}
