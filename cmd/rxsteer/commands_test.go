package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A command in a document is a line of rxsteer in a fenced block of sh or console, or in an indented block. A comment above
// the block says what the test does with all of them:
//
//	<!-- run -->            run each, one after the other, in a folder of the block's own; the exit code is 0 or 3 (findings)
//	<!-- run: root -->      the same, where the test is root; else as parse
//	<!-- parse: REASON -->  only see that the command and its flags exist, for the reason given
//
// A block without such a comment that has a line of rxsteer in it is an error.
type docBlock struct {
	file  string
	line  int
	do    string   // run, run: root, parse, or "" where nothing is said
	lines []string // of shell, without sudo, prompt and comment
	ours  int      // lines that begin with rxsteer
}

var (
	directive = regexp.MustCompile(`^<!-- (run|run: root|parse: .+) -->$`)
	indented  = "    "
)

// blocks are the blocks of a document that hold commands of rxsteer.
func blocks(file, text string) []docBlock {
	var out []docBlock
	var b *docBlock
	said, fenced, shell := "", false, false
	add := func(line string) {
		line, ours := command(line)
		if ours {
			b.ours++
		}
		if ours || fenced && line != "" {
			b.lines = append(b.lines, line)
		}
	}
	end := func() {
		if b != nil && b.ours > 0 {
			out = append(out, *b)
		}
		b = nil
	}
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```") && !fenced:
			end()
			lang := strings.TrimPrefix(line, "```")
			fenced, shell = true, lang == "sh" || lang == "console"
			b = &docBlock{file: file, line: i + 1, do: said}
			said = ""
		case strings.HasPrefix(line, "```"):
			fenced = false
			end()
		case fenced && shell:
			add(line)
		case fenced:
		case strings.HasPrefix(line, indented):
			if b == nil {
				b = &docBlock{file: file, line: i + 1, do: said}
				said = ""
			}
			add(strings.TrimPrefix(line, indented))
		case line == "":
		default:
			end()
			said = ""
			if m := directive.FindStringSubmatch(line); m != nil {
				said = m[1]
			}
		}
	}
	end()
	return out
}

// command is a line without sudo, prompt and comment, and whether it is a command of rxsteer. Lines that show what one said
// are none: words in them are two spaces apart.
func command(line string) (string, bool) {
	line, _, _ = strings.Cut(line, " #")
	line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
	line = strings.TrimPrefix(line, "sudo ")
	return line, strings.HasPrefix(line, "rxsteer ") && !strings.Contains(line, "  ")
}

// parts are the rxsteer commands of a line of shell.
func parts(line string) (out []string) {
	for _, p := range regexp.MustCompile(`&&|\|\||[|;]`).Split(line, -1) {
		if c, ok := command(p); ok {
			out = append(out, c)
		}
	}
	return out
}

// TestCommandsOfDocuments: each command in the documents exists and, where the document says so, runs.
func TestCommandsOfDocuments(t *testing.T) {
	commands := 0
	for file, text := range documents(t) {
		for _, b := range blocks(strings.TrimPrefix(file, "../../"), text) {
			commands += b.ours
			t.Run(fmt.Sprintf("%s:%d", b.file, b.line), b.try)
		}
	}
	if commands < 15 {
		t.Errorf("%d commands read: the reading is broken", commands)
	}
}

func (b *docBlock) try(t *testing.T) {
	if b.do == "" {
		t.Fatalf("%q … and nothing above the block says whether to run it: <!-- run -->, <!-- run: root --> or <!-- parse: REASON -->", b.lines[0])
	}
	dir := t.TempDir()
	shell := func(script string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		cmd.Dir = dir // rxsteer is this test's own program: testscript.Main puts it on the path
		out, err := cmd.CombinedOutput()
		return string(bytes.TrimSpace(out)), err
	}
	run := b.do == "run" || b.do == "run: root" && os.Geteuid() == 0
	for _, line := range b.lines {
		for _, c := range parts(line) {
			b.exists(t, shell, c)
		}
		if !run {
			continue
		}
		out, err := shell(line)
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 3 {
			err = nil
		}
		if errors.As(err, &exit) && exit.ExitCode() == exitPrivilege && os.Geteuid() != 0 {
			t.Skipf("needs root: %s", out) // a journal that root left is not for an ordinary user
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

var flagName = regexp.MustCompile(`(?:^| )(-[a-z]|--[a-z][a-z.-]*)`)

// exists asks the help whether a command and its flags are there.
func (b *docBlock) exists(t *testing.T, shell func(string) (string, error), line string) {
	line, _, _ = strings.Cut(line, " -- ") // the command of trial is somebody else's
	words := strings.Fields(line)
	name := []string{words[1]}
	if len(words) > 2 && slices.Contains([]string{"baseline", "completion"}, words[1]) {
		name = append(name, words[2])
	}
	help, err := shell("rxsteer help " + strings.Join(name, " "))
	if err != nil || !strings.Contains(help, "rxsteer "+strings.Join(name, " ")) {
		t.Errorf("%s: there is no such command: %v %.200s", line, err, help)
	}
	known := map[string]bool{}
	for _, m := range flagName.FindAllStringSubmatch(strings.ReplaceAll(help, ",", " "), -1) {
		known[m[1]] = true
	}
	for _, m := range flagName.FindAllStringSubmatch(line, -1) {
		if !known[m[1]] {
			t.Errorf("%s: no flag %s; there are %v", line, m[1], slices.Sorted(maps.Keys(known)))
		}
	}
}

func TestBlocks(t *testing.T) {
	text := "a\n\n<!-- run -->\n\n```sh\nsudo rxsteer status  # look\nls\n```\n\n    rxsteer plan  1 → 2\n    $ rxsteer doctor\n\n<!-- parse: writes -->\n\n    rxsteer apply && rxsteer persist | x\n\n```yaml\nrxsteer no\n```\n"
	var got []string
	for _, b := range blocks("f", text) {
		got = append(got, fmt.Sprint(b.line, " ", b.do, " ", b.lines))
	}
	want := []string{"5 run [rxsteer status ls]", "10  [rxsteer doctor]", "15 parse: writes [rxsteer apply && rxsteer persist | x]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if p := parts("rxsteer apply fix.yaml && rxsteer persist | x"); !slices.Equal(p, []string{"rxsteer apply fix.yaml", "rxsteer persist"}) {
		t.Errorf("parts: %q", p)
	}
}
