package main

import "github.com/spf13/cobra"

// commands lists every command, in the order in which help shows them.
func commands(e *env) []*cobra.Command {
	cobra.EnableCommandSorting = false
	return []*cobra.Command{
		statusCommand(e),
		irqsCommand(e),
		topCommand(e),
		doctorCommand(e),
		profileCommand(e),
		diagnoseCommand(e),
		explainCommand(e),
		simulateCommand(e),
		planCommand(e),
		applyCommand(e),
		trialCommand(e),
		persistCommand(e),
		confirmCommand(e),
		rollbackCommand(e),
		historyCommand(e),
		baselineCommand(e),
		recordCommand(e),
		reportCommand(e),
		bundleCommand(e),
		agentCommand(e),
		watchCommand(e),
		persistRunCommand(e),
		manCommand(e),
		versionCommand(e),
	}
}
