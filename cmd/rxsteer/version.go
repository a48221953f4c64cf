package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of rxsteer and the commit it is built from",
		GroupID: groupServe,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(e.stdout, "rxsteer %s (%s%s, %s/%s)\n", versionText(), commitText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// versionText is the linker's version, else what `go install` recorded.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// commit is set by the linker.
var commit string

// commitText is the linker's commit, else the one that the toolchain saw, with a comma behind it; nothing where neither told.
func commitText() string {
	at := commit
	if info, ok := debug.ReadBuildInfo(); ok && at == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				at = s.Value
			}
		}
	}
	if at == "" {
		return ""
	}
	return "commit " + at[:min(12, len(at))] + ", "
}
