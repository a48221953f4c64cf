package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Groups of commands as the help lists them.
const (
	groupLook  = "look"
	groupSteer = "steer"
	groupServe = "serve"
)

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "rxsteer",
		Short: "Find and fix where the receive path of this host loses time",
		Long: `rxsteer finds the queue, interrupt, CPU or flow on which the receive path of a
Linux host loses time, says why, and fixes it as a transaction: measured,
explained, applied, verified, and undone if it is worse.

Only apply, trial, confirm, rollback and persist write to the host, and an agent whose
configuration says mode: auto; everything else reads.`,
		Example: `  rxsteer status                     what serves which queue
  rxsteer diagnose --for 10s         measure, and say what is wrong
  rxsteer plan -w fix.yaml           what to change; nothing is written to the host
  rxsteer apply fix.yaml             change it, judge it, keep it or undo it
  rxsteer rollback                   undo the last change`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetArgs(e.args)
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &failure{exitUsage, err, []string{c.CommandPath() + " --help lists the flags"}}
	})
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "See:"},
		&cobra.Group{ID: groupSteer, Title: "Change:"},
		&cobra.Group{ID: groupServe, Title: "Keep and share:"},
	)
	for _, c := range commands(e) {
		root.AddCommand(c)
	}
	root.SetHelpCommandGroupID(groupServe)
	root.SetCompletionCommandGroupID(groupServe)
	return root
}

// knownCommand refuses arguments of a command that only has commands below it.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	f := &failure{code: exitUsage, err: fmt.Errorf("no command %q", strings.TrimPrefix(c.CommandPath()+" "+args[0], "rxsteer "))}
	c.SuggestionsMinimumDistance = 2
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		f.next = append(f.next, "did you mean "+strings.Join(like, " or ")+"?")
	}
	f.next = append(f.next, c.CommandPath()+" --help lists the commands")
	return f
}

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}`

const usageTemplate = `Usage: {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND [flags]{{else}}{{.UseLine}}{{end}}
{{if .HasExample}}
Examples:
{{.Example}}
{{end}}{{if .HasAvailableSubCommands}}{{$all := .Commands}}{{range $group := .Groups}}
{{.Title}}{{range $all}}{{if and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{range $all}}{{if and (not .GroupID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{if not .Groups}}
{{end}}{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsagesWrapped 96 | trimTrailingWhitespaces}}
{{end}}`

// run executes the command line and returns the exit code.
func run(ctx context.Context, e *env) int {
	root := newRoot(e)
	stop := func() {}
	root.PersistentPreRun = func(c *cobra.Command, _ []string) {
		if c.Name() == agentName {
			return // reads its configuration again
		}
		ctx, end := signal.NotifyContext(c.Context(), syscall.SIGHUP) // the terminal is gone
		c.SetContext(ctx)
		stop = end
	}
	cmd, err := root.ExecuteContextC(ctx)
	ended := ctx.Err() != nil || cmd.Context().Err() != nil
	stop()
	if err == nil {
		return exitOK
	}
	var f *failure
	if !errors.As(err, &f) {
		switch text := err.Error(); {
		// cobra has no error values for these.
		case strings.HasPrefix(text, "unknown command"),
			strings.HasPrefix(text, "accepts "), strings.HasPrefix(text, "requires "),
			strings.HasPrefix(text, "required flag"), strings.Contains(text, "arg(s)"):
			text = strings.TrimSpace(text)
			err = &failure{exitUsage, errors.New(text), []string{"usage: " + cmd.UseLine(), cmd.CommandPath() + " --help shows how it is used"}}
		case ended && errors.Is(err, context.Canceled):
			err = errors.New("interrupted; nothing was changed and nothing is left attached")
		}
	}
	return report(e.stderr, err)
}
