package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/deploy/embedded/buildversion"
)

const (
	groupServers = "servers"
	groupCluster = "cluster"
	groupData    = "data"
	groupCoord   = "coordination"
	groupMeasure = "measure"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tidemark",
		Short: "A partitioned, replicated key-value database",
		Long: `Tidemark is a partitioned, replicated key-value database. This is all of it: the servers,
their administration, the data and a load generator.

To see it run:         tidemark demo
Then, elsewhere:       tidemark keyspace create fruit --partitions hash:8
                       tidemark put fruit apple green
                       tidemark scan fruit`,
		Version:       buildVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(flagMeant)
	a.colorFlag(root)
	columns := helpColumns
	if a.width > 0 {
		columns = min(columns, a.width)
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages",
		fmt.Sprintf(".FlagUsagesWrapped %d", columns)))
	a.fitHelp(root)
	root.SetVersionTemplate("tidemark {{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: groupServers, Title: "Servers:"},
		&cobra.Group{ID: groupCluster, Title: "The cluster:"},
		&cobra.Group{ID: groupData, Title: "Data:"},
		&cobra.Group{ID: groupCoord, Title: "Coordination:"},
		&cobra.Group{ID: groupMeasure, Title: "Measuring:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(groupServers, a.demoCommand(), a.startCommand(), a.secretCommand(), a.certCommand())
	add(groupCluster, a.statusCommand(), a.doctorCommand(), a.topCommand(), a.healthCommand(),
		a.nodesCommand(),
		a.coreCommand(), a.keyspaceCommand(), a.consumersCommand(), a.partitionsCommand(),
		a.nodeCommand(), a.moveCommand(), a.transferCommand(), a.splitCommand(), a.mergeCommand(),
		a.placementCommand(), a.operatorsCommand(), a.eventsCommand(), a.whyCommand(),
		a.backupCommand(), a.restoreCommand(), a.upgradeCommand(), a.recoverCommand(),
		a.slowCommand(), a.debugCommand())
	add(groupData, a.getCommand(), a.putCommand(), a.deleteCommand(), a.casCommand(),
		a.incrementCommand(), a.scanCommand(),
		a.countCommand(), a.txnCommand(), a.loadCommand(), a.dumpCommand(),
		a.changesCommand())
	add(groupCoord, a.authCommand(), a.coordCommand(), a.leaseCommand(), a.lockCommand(),
		a.electCommand(), a.timerCommand())
	add(groupMeasure, a.benchCommand())
	root.AddCommand(a.versionCommand(), a.manCommand(),
		&cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exit.Help})
	return root
}

// buildVersion returns the version set by the build, or the one that the go command has recorded.
func buildVersion() string {
	return cmp.Or(version, buildversion.Read().Version)
}

func platform() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }

func (a *app) versionCommand() *cobra.Command {
	return a.printing(&cobra.Command{
		Use:   "version",
		Short: "Show the version of this binary",
		Args:  arguments("", 0, 0),
		RunE: a.verb(func(context.Context, []string) error {
			list := a.list(output.Column{Name: "version"}, output.Column{Name: "built with"},
				output.Column{Name: "commit"})
			list.Row(buildVersion(), platform(), buildversion.Read().Commit)
			return list.Flush()
		}),
	})
}
