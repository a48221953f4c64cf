// Command testreport reads `go test -json` on standard input, prints a line per
// package, the output of what failed and every skip with its reason, and fails on
// a failed test or on a skip whose reason no line of the -skips file allows.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is one line of test2json (cmd/test2json documents the fields).
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

func main() {
	skips := flag.String("skips", "", "file of regular expressions of allowed skip reasons")
	flag.Parse()
	allowed, err := readAllowed(*skips)
	if err == nil {
		var ok bool
		if ok, err = report(os.Stdin, os.Stdout, allowed); err == nil && !ok {
			os.Exit(1)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
}

func readAllowed(path string) ([]*regexp.Regexp, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []*regexp.Regexp
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		re, err := regexp.Compile(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		out = append(out, re)
	}
	return out, nil
}

// report returns false when something failed or was skipped without leave.
func report(r io.Reader, w io.Writer, allowed []*regexp.Regexp) (bool, error) {
	type key struct{ pkg, test string }
	output := map[key][]string{}
	var passed, failed, skipped, unexplained int
	in := bufio.NewScanner(r)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			fmt.Fprintln(w, in.Text()) // build output of old toolchains comes as it is
			continue
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output":
			output[k] = append(output[k], e.Output)
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "build-fail":
			failed++
			fmt.Fprintf(w, "FAIL  build of %s\n", e.ImportPath)
		case "pass", "fail", "skip":
			text := strings.Join(output[k], "")
			delete(output, k)
			if e.Test == "" {
				switch {
				case e.Action == "fail":
					failed++ // also when no single test did: a panic, an os.Exit, a build error
					for k, lines := range output {
						if k.pkg == e.Package { // killed while it ran
							fmt.Fprintf(w, "DIED  %s %s\n%s", k.pkg, k.test, strings.Join(lines, ""))
							delete(output, k)
						}
					}
					fmt.Fprintf(w, "FAIL  %s (%.1f s)\n%s", e.Package, e.Elapsed, text)
				case e.Action == "pass":
					fmt.Fprintf(w, "ok    %s (%.1f s)\n", e.Package, e.Elapsed)
				}
				continue
			}
			switch e.Action {
			case "pass":
				passed++
			case "fail":
				failed++
				fmt.Fprintf(w, "FAIL  %s %s\n%s", e.Package, e.Test, text)
			case "skip":
				skipped++
				reason := skipReason(text)
				verdict := "skip "
				if !slices.ContainsFunc(allowed, func(re *regexp.Regexp) bool { return re.MatchString(reason) }) {
					unexplained++
					verdict = "SKIP NOT ALLOWED"
				}
				fmt.Fprintf(w, "%s %s %s: %s\n", verdict, e.Package, e.Test, reason)
			}
		}
	}
	if err := in.Err(); err != nil {
		return false, fmt.Errorf("read test output: %w", err)
	}
	if unexplained > 0 {
		fmt.Fprintf(w, "%d skips are not allowed here\n", unexplained)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && unexplained == 0 && passed > 0, nil
}

var location = regexp.MustCompile(`^\s+[\w.-]+\.go:\d+: `)

// skipReason is the text t.Skip was called with: the last line with a source location.
func skipReason(output string) string {
	reason := "no reason given"
	for line := range strings.Lines(output) {
		if loc := location.FindString(line); loc != "" {
			reason = strings.TrimSpace(line[len(loc):])
		}
	}
	return reason
}
