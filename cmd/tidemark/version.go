package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

func (a *app) versionCommand() *cobra.Command {
	return a.printing(&cobra.Command{
		Use:   "version",
		Short: "Show the version of this binary",
		Args:  arguments("", 0, 0),
		RunE: a.verb(func(context.Context, []string) error {
			list := a.list(output.Column{Name: "version"}, output.Column{Name: "built with"})
			list.Row(buildVersion(), platform())
			return list.Flush()
		}),
	})
}
