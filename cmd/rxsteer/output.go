package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// output is the -o flag.
type output struct {
	format  string
	allowed []string
}

func addOutput(c *cobra.Command, allowed ...string) *output {
	o := &output{allowed: append([]string{"text"}, allowed...)}
	c.Flags().StringVarP(&o.format, "output", "o", "text", "print as `FORMAT`: "+strings.Join(o.allowed, ", "))
	c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.allowed, cobra.ShellCompDirectiveNoFileComp))
	return o
}

func (o *output) check() error {
	if !slices.Contains(o.allowed, o.format) {
		return usage("-o %s: want one of %s", o.format, strings.Join(o.allowed, ", "))
	}
	return nil
}

// printJSON writes v as indented JSON and a newline.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
