// Package strictyaml reads the YAML files people write for rxsteer: one document, no unknown or doubled
// keys, and errors that say "file:line:column: what" and show the line. It bounds what it
// hands to the YAML library, whose time and stack grow with odd text.
//
// It refuses to know what a file means: its caller does.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Bounds on what is handed to the YAML library.
const (
	// MaxFile is how many bytes a file may have.
	MaxFile  = 4 << 20 // a plan of 4096 vectors is about 2 MiB
	maxLine  = 64 << 10
	maxDepth = 32 // of brackets and dashes on one line
)

// File is a file that was read. Its name is how errors call it.
type File struct {
	Name string
	tree *ast.File
}

// Decode reads one document into the struct v points to, strictly. kind says in errors what the file should be ("plan").
func Decode(name, kind string, data []byte, v any) (f *File, err error) {
	if err := tame(name, kind, data); err != nil {
		return nil, err
	}
	// The YAML library panics on some malformed text; for the reader that is one more bad file.
	defer func() {
		if v := recover(); v != nil {
			f, err = nil, fmt.Errorf("%s: not YAML a %s can be read from: %v", name, kind, v)
		}
	}()
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, located(name, err)
	}
	if len(tree.Docs) != 1 || tree.Docs[0].Body == nil {
		return nil, fmt.Errorf("%s: want one YAML document that holds a %s, found %d", name, kind, docs(tree))
	}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(v); err != nil {
		return nil, located(name, err)
	}
	return &File{Name: name, tree: tree}, nil
}

// At puts file, line and column before an error about the value at a path ("$.changes[0].from"), or about the
// nearest enclosing one that is there.
func (f *File) At(path string, err error) error {
	for p := path; ; {
		yp, perr := yaml.PathString(p)
		if perr == nil {
			if n, nerr := yp.FilterFile(f.tree); nerr == nil && n != nil && n.GetToken() != nil {
				pos := n.GetToken().Position
				return fmt.Errorf("%s:%d:%d: %w", f.Name, pos.Line, pos.Column, err)
			}
		}
		i := strings.LastIndexAny(p, ".[")
		if i <= 0 {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		p = p[:i]
	}
}

// tame refuses text that is no such file and would cost the YAML library much.
func tame(name, kind string, data []byte) error {
	if len(data) > MaxFile {
		return fmt.Errorf("%s: %d bytes is no %s (at most %d)", name, len(data), kind, MaxFile)
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("%s:%d: holds a zero byte: not a text file", name, 1+bytes.Count(data[:i], []byte{'\n'}))
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if len(line) > maxLine {
			return fmt.Errorf("%s:%d: a line of %d bytes is no %s's (at most %d)", name, n, len(line), kind, maxLine)
		}
		indent := len(line) - len(bytes.TrimLeft(line, " -?\t"))
		if indent > 2*maxDepth || bytes.Count(line, []byte{'['}) > maxDepth || bytes.Count(line, []byte{'{'}) > maxDepth {
			return fmt.Errorf("%s:%d: nested deeper than any %s", name, n, kind)
		}
	}
	return nil
}

func docs(f *ast.File) int {
	n := 0
	for _, d := range f.Docs {
		if d.Body != nil {
			n++
		}
	}
	return n
}

// located puts the file name before an error of the YAML library and shows the line.
func located(name string, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return fmt.Errorf("%s: %s", name, strings.TrimSpace(err.Error()))
	}
	pos := ye.GetToken().Position
	text := yaml.FormatError(err, false, true)
	if _, source, ok := strings.Cut(text, "\n"); ok {
		return fmt.Errorf("%s:%d:%d: %s\n%s", name, pos.Line, pos.Column, ye.GetMessage(), strings.TrimRight(source, "\n "))
	}
	return fmt.Errorf("%s:%d:%d: %s", name, pos.Line, pos.Column, ye.GetMessage())
}
