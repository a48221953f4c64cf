package main

import "github.com/spf13/cobra"

// commands lists every command, in the order in which help shows them.
func commands(e *env) []*cobra.Command {
	cobra.EnableCommandSorting = false
	return []*cobra.Command{
		statusCommand(e),
		diagnoseCommand(e),
		planCommand(e),
		manCommand(e),
		versionCommand(e),
	}
}
