package qemu

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var cmpSource = cmp.AllowUnexported(source{})

func TestParseSources(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []source
	}{
		"deb822, two stanzas": {`Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`, []source{
			{"http://mirror.example/debian", "bookworm", "/usr/share/keyrings/debian-archive-keyring.gpg"},
			{"http://mirror.example/debian", "bookworm-updates", "/usr/share/keyrings/debian-archive-keyring.gpg"},
			{"http://mirror.example/debian-security", "bookworm-security", "/usr/share/keyrings/debian-archive-keyring.gpg"},
		}},
		"one line, with options": {"# deb http://old.example/debian bookworm main\ndeb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\ndeb-src http://mirror.example/debian bookworm main\n",
			[]source{{"http://mirror.example/debian", "bookworm", "/k.gpg"}}},
		"not main":           {"deb http://other.example/x nodistro stable\n", nil},
		"disabled":           {"Types: deb\nURIs: http://a\nSuites: b\nComponents: main\nEnabled: no\n", nil},
		"sources only":       {"Types: deb-src\nURIs: http://a\nSuites: b\nComponents: main\n", nil},
		"unclosed options":   {"deb [arch=amd64 http://a b main\n", nil},
		"cut short one line": {"deb http://a\n", nil},
		"empty":              {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parseSources(c.text), cmpSource); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeriveSuites(t *testing.T) {
	have := []source{{"http://a/debian", "bookworm", "k"}, {"http://a/debian-security", "bookworm-security", "k"}}
	want := []source{{"http://a/debian", "bullseye", "k"}, {"http://a/debian-security", "bullseye-security", "k"}}
	if diff := cmp.Diff(want, derive(have, "bookworm", "bullseye", "bullseye-security"), cmpSource); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := derive(have[:1], "bookworm", "bookworm-security"); len(got) != 0 {
		t.Errorf("without a security entry: got %v, want none", got)
	}
	if got := derive(have, "noble", "noble"); len(got) != 0 {
		t.Errorf("another release: got %v, want none", got)
	}
}

func TestFormatSourcesIsWhatParseReads(t *testing.T) {
	want := []source{{"http://a/debian", "bookworm", "k"}, {"http://b/debian", "x", ""}}
	if diff := cmp.Diff(want, parseSources(formatSources(want)), cmpSource); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNewestKernelPackage(t *testing.T) {
	const list = `linux-image-6.1.0-9-amd64-unsigned
linux-image-6.1.0-40-amd64-unsigned
linux-image-6.1.0-40-amd64-dbg
linux-image-6.1.0-41-rt-amd64-unsigned
linux-image-6.1.0-41-cloud-amd64-unsigned
linux-image-6.12.9+bpo-amd64-unsigned
linux-image-6.12.117+deb12-amd64-unsigned
linux-image-6.12.22+deb12-amd64-unsigned
linux-image-5.10.0-46-amd64-unsigned
`
	for version, want := range map[string]string{
		"6.1":  "linux-image-6.1.0-40-amd64-unsigned",
		"6.12": "linux-image-6.12.117+deb12-amd64-unsigned",
		"5.10": "linux-image-5.10.0-46-amd64-unsigned",
		"4.19": "",
		"5.1":  "",
	} {
		if got := newestPackage(list, kernelPackage(version)); got != want {
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}

func TestSuiteGoneIsToldFromNoNetwork(t *testing.T) {
	for text, want := range map[string]bool{
		"E: The repository 'http://a/debian bullseye Release' does not have a Release file.":                   true,
		"Err:1 http://a/debian bullseye-security Release\n  404  Not Found [IP: 192.0.2.1 80]":                 true,
		"W: Failed to fetch http://a/debian/dists/bullseye/InRelease  Temporary failure resolving 'a'":         false,
		"W: Failed to fetch http://a/debian/dists/bullseye/InRelease  Connection timed out [IP: 192.0.2.1 80]": false,
	} {
		if got := suiteGone.MatchString(text); got != want {
			t.Errorf("%s: gone %v, want %v", text, got, want)
		}
	}
}

func TestCodename(t *testing.T) {
	for text, want := range map[string]string{
		"ID=debian\nVERSION_CODENAME=bookworm\n": "bookworm",
		"VERSION_CODENAME=\"trixie\"\n":          "trixie",
		"ID=alpine\n":                            "",
	} {
		if got := codename(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
