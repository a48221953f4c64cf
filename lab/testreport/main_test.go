package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const (
		run     = `{"Action":"run","Package":"p","Test":"T"}` + "\n"
		pass    = `{"Action":"pass","Package":"p","Test":"T"}` + "\n"
		pkgPass = `{"Action":"pass","Package":"p","Elapsed":1}` + "\n"
		fail    = `{"Action":"output","Package":"p","Test":"T","Output":"    x_test.go:3: wrong\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"T"}` + "\n"
		skip    = `{"Action":"output","Package":"p","Test":"U","Output":"    x_test.go:3: needs root\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"U"}` + "\n"
		build   = `{"ImportPath":"p","Action":"build-output","Output":"x.go:1: broken\n"}` + "\n" + `{"ImportPath":"p","Action":"build-fail"}` + "\n"
	)
	needs := []*regexp.Regexp{regexp.MustCompile("^needs ")}
	for _, tt := range []struct {
		name    string
		in      string
		allowed []*regexp.Regexp
		ok      bool
		want    string
	}{
		{"a pass is fine", run + pass + pkgPass, nil, true, "1 passed, 0 failed, 0 skipped"},
		{"a failure fails and shows its output", run + fail, nil, false, "x_test.go:3: wrong"},
		{"a skip without leave fails", run + pass + skip, nil, false, "SKIP NOT ALLOWED p U: needs root"},
		{"an allowed skip is named", run + pass + skip, needs, true, "skip  p U: needs root"},
		{"a broken build fails", build, nil, false, "x.go:1: broken"},
		{"a package that dies fails", run + pass + `{"Action":"fail","Package":"p"}`, nil, false, "FAIL  p"},
		{"a test that was running shows its output", run + `{"Action":"output","Package":"p","Test":"T","Output":"goroutine 7\n"}` + "\n" + `{"Action":"fail","Package":"p"}`, nil, false, "DIED  p T\ngoroutine 7"},
		{"no test at all fails", "", nil, false, "0 passed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			ok, err := report(strings.NewReader(tt.in), &out, tt.allowed)
			if err != nil {
				t.Fatal(err)
			}
			if ok != tt.ok {
				t.Errorf("ok = %v, want %v\n%s", ok, tt.ok, out.String())
			}
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("output lacks %q:\n%s", tt.want, out.String())
			}
		})
	}
}
