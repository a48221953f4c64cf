package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/steer/diagnose"
)

func explainCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain [RXnnn]",
		Short: "Explain a finding: cause, evidence, remedy, reading",
		Long: `Explain a finding: what causes it, by what evidence it is known, what remedies it
has, and where to read on. Without an ID it lists all findings; those that this
version of diagnose does not look for yet are marked.`,
		Example: `  rxsteer explain
  rxsteer explain RX301`,
		GroupID: groupLook,
		Args:    cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var out []string
			for _, x := range diagnose.Catalogue() {
				out = append(out, cobra.CompletionWithDesc(string(x.ID), x.Title))
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
	}
	out := addOutput(c, "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if len(args) == 0 {
			if out.format == "json" {
				docs := []explainDoc{}
				for _, x := range diagnose.Catalogue() {
					docs = append(docs, viewEntry(x))
				}
				return printJSON(e.stdout, docs)
			}
			printCatalogue(e.stdout, e.palette())
			return nil
		}
		x, ok := diagnose.Explain(diagnose.ID(strings.ToUpper(args[0])))
		if !ok {
			return &failure{exitUsage, errors.New("no finding " + args[0]), []string{"rxsteer explain lists all"}}
		}
		if out.format == "json" {
			return printJSON(e.stdout, viewEntry(x))
		}
		printEntry(e.stdout, &x, e.palette(), e.textWidth())
		return nil
	}
	return c
}

// explainDoc is the JSON of explain; docs/json.md describes it.
type explainDoc struct {
	ID       diagnose.ID `json:"id"`
	Title    string      `json:"title"`
	Detected bool        `json:"detected"`
	Cause    string      `json:"cause"`
	Evidence string      `json:"evidence"`
	Remedy   string      `json:"remedy"`
	Verify   string      `json:"verify"`
	Reading  []string    `json:"reading"`
}

func viewEntry(x diagnose.Entry) explainDoc {
	return explainDoc{x.ID, x.Title, x.Detected, x.Cause, x.Measured, x.Do, x.Verify, append([]string{}, x.Reading...)}
}

func printCatalogue(w io.Writer, p palette) {
	missing := false
	for _, x := range diagnose.Catalogue() {
		mark := " "
		if !x.Detected {
			mark, missing = "*", true
		}
		fmt.Fprintf(w, "%s%s %s\n", p.bold(string(x.ID)), mark, x.Title)
	}
	if missing {
		fmt.Fprintln(w, "\n* not looked for by this version of diagnose")
	}
}

func printEntry(w io.Writer, x *diagnose.Entry, p palette, width int) {
	fmt.Fprintln(w, p.bold(string(x.ID))+" "+x.Title)
	if !x.Detected {
		fmt.Fprintln(w, "(not looked for by this version of diagnose)")
	}
	for _, part := range []struct{ title, text string }{
		{"Cause", x.Cause}, {"Evidence", x.Measured}, {"Remedy", x.Do}, {"Verify", x.Verify},
	} {
		if part.text != "" {
			fmt.Fprintln(w, "\n"+p.bold(part.title))
			wrap(w, width, "  ", "  ", part.text)
		}
	}
	if len(x.Reading) > 0 {
		fmt.Fprintln(w, "\n"+p.bold("Reading"))
		for _, r := range x.Reading {
			fmt.Fprintln(w, "  "+r)
		}
	}
}
