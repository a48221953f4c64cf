package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assets embed.FS

// scripts and styles of the page, in order.
var (
	scripts = []string{"vendor/uPlot.iife.min.js", "vendor/d3-array.min.js", "vendor/d3-path.min.js", "vendor/d3-shape.min.js", "vendor/d3-sankey.min.js", "app.js"}
	styles  = []string{"vendor/uPlot.min.css", "app.css"}
)

// policy lets the page load what this agent serves and nothing else, run no inline script and sit in no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is an asset ready to be sent.
type file struct {
	kind        string
	tag         string // entity tag: changes with the content
	raw, zipped []byte
}

// files are the page and what it refers to, by path.
func files(version string) (map[string]*file, error) {
	out := map[string]*file{}
	err := fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "assets/")
		if name == "index.html" {
			b, name = page(b, version), ""
		}
		f, err := newFile(name, b)
		out["/"+name] = f
		return err
	})
	return out, err
}

func newFile(name string, b []byte) (*file, error) {
	f := &file{kind: mime.TypeByExtension(path.Ext(name)), raw: b}
	if name == "" {
		f.kind = "text/html; charset=utf-8"
	}
	sum := sha256.Sum256(b)
	f.tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	f.zipped = z.Bytes()
	return f, nil
}

// page fills the marks of index.html.
func page(b []byte, version string) []byte {
	var head, tail strings.Builder
	for _, s := range styles {
		fmt.Fprintf(&head, "<link rel=\"stylesheet\" href=\"%s\">\n", s)
	}
	for _, s := range scripts {
		fmt.Fprintf(&tail, "<script defer src=\"%s\"></script>\n", s)
	}
	return fill(b, head.String(), tail.String(), version)
}

func fill(b []byte, head, tail, version string) []byte {
	return []byte(strings.NewReplacer("<!--head-->", head, "<!--tail-->", tail, "{{version}}", htmlEscape(version)).Replace(string(b)))
}

func htmlEscape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;").Replace(s)
}

func (f *file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.raw
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.zipped
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body) // the viewer went away
}

// guard sets what protects a viewer on every answer.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}
