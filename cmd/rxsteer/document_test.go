package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// documents are what users read, from the module's root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range append(files, "../../README.md", "../../deploy/README.md", "../../lab/README.md") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[f] = string(text)
	}
	return out
}

// caseBlock is a block of a document that is an answer to a case of steer/diagnose: "<!-- case NAME: diagnose RX102 -->" shows
// the paragraph of that finding, "<!-- case NAME: plan -->" the changes.
var caseBlock = regexp.MustCompile("(?m)^<!-- case ([\\w.-]+): (diagnose|plan)(?: (RX\\d{3}))? -->\n```text\n((?:.*\n)*?)```$")

// TestDocumentsShowWhatIsSaid: outputs in the documents are those of this program; -update rewrites them.
func TestDocumentsShowWhatIsSaid(t *testing.T) {
	blocks := 0
	for file, text := range documents(t) {
		now := caseBlock.ReplaceAllStringFunc(text, func(block string) string {
			blocks++
			m := caseBlock.FindStringSubmatch(block)
			return strings.TrimSuffix(block, m[4]+"```") + said(t, m[1], m[2], m[3]) + "```"
		})
		if strings.Count(text, "<!-- case ") != len(caseBlock.FindAllString(text, -1)) {
			t.Errorf("%s: a case without a block ```text after it", file)
		}
		if *update && now != text {
			if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if d := cmp.Diff(text, now); d != "" {
			t.Errorf("%s differs; go test ./cmd/rxsteer -update rewrites it (-want +got):\n%s", file, d)
		}
	}
	if blocks == 0 {
		t.Error("no document shows a case")
	}
}

// said is what a command says of a case: the paragraph of a finding, or the changes of a plan.
func said(t *testing.T, name, command, finding string) string {
	t.Helper()
	a, err := txtar.ParseFile("../../steer/diagnose/testdata/cases/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pasted"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		if err := os.WriteFile(filepath.Join(dir, "pasted", f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, out, stderr := testEnv(command, "--from", filepath.Join(dir, "pasted"))
	if code := run(t.Context(), e); code != exitOK && code != exitFindings {
		t.Fatalf("%s of %s: exit %d: %s", command, name, code, stderr)
	}
	var paragraphs []string
	for p := range strings.SplitSeq(out.String(), "\n\n") {
		if finding == "" && !strings.HasPrefix(p, "  ·") || finding != "" && strings.HasPrefix(p, finding+" ") {
			paragraphs = append(paragraphs, strings.TrimSpace(p))
		}
	}
	if len(paragraphs) == 0 {
		t.Fatalf("%s of %s says nothing of %s", command, name, finding)
	}
	return strings.Join(paragraphs, "\n\n") + "\n"
}

// TestCommandsInSentencesExist: each `rxsteer …` in a sentence of a document is a command with those flags. Blocks of
// commands are tried by docs_test.go.
func TestCommandsInSentencesExist(t *testing.T) {
	span := regexp.MustCompile("`(?:sudo )?rxsteer ([a-z-][^`]*)`")
	commands := 0
	for file, text := range documents(t) {
		for _, m := range span.FindAllStringSubmatch(text, -1) {
			for part := range strings.SplitSeq("rxsteer "+m[1], "&&") {
				args := strings.Fields(strings.ReplaceAll(part, "RXnnn", "RX101"))[1:]
				if i := slices.Index(args, "--"); i >= 0 {
					args = args[:i]
				}
				commands++
				e, _, _ := testEnv()
				root := newRoot(e)
				root.InitDefaultHelpCmd()
				root.InitDefaultCompletionCmd()
				c, rest, err := root.Find(args)
				if err != nil || c == root && !strings.HasPrefix(args[0], "-") {
					t.Errorf("%s: %q is no command: %v", file, part, err)
					continue
				}
				c.InitDefaultHelpFlag()
				if err := c.ParseFlags(rest); err != nil {
					t.Errorf("%s: %q: %v", file, part, err)
				}
			}
		}
	}
	if commands < 10 {
		t.Errorf("only %d commands found in the documents", commands)
	}
}
