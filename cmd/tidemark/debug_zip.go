package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/bugreport"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/doctor"
)

func (a *app) debugZipCommand() *cobra.Command {
	var profile time.Duration
	cmd := &cobra.Command{
		Use:   "zip FILE",
		Short: "Collect what a report of a fault needs, in a zip file",
		Long: `Write FILE, a zip file with the state of the cluster, the findings of "tidemark doctor",
and from each server what it reports of itself and its machine, its metrics, the stacks of its
goroutines, profiles, and the last lines of its log. Keys, values, secrets and credentials are left
out; names of keyspaces, addresses and directories are there.

Servers that do not answer are left out; errors.txt in the zip says why. FILE must not exist. While
authentication is enabled, the command needs the role root.`,
		Example: `  tidemark debug zip report.zip
  tidemark debug zip --profile 0 report.zip`,
		Args: arguments("FILE", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			if profile < 0 || profile > 30*time.Second || profile%time.Second != 0 {
				return exit.Usagef("--profile is whole seconds, 30s at most, or 0 for none")
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				return a.debugZip(ctx, admin.New(client), args[0], profile)
			})
		}),
	}
	cmd.Flags().DurationVar(&profile, "profile", 5*time.Second,
		"how long the processor time of each server is measured; 0: not at all")
	return a.printing(a.client(cmd))
}

func (a *app) debugZip(ctx context.Context, cluster *admin.Client, name string,
	profile time.Duration) error {
	// The file is created first, so that a long collection does not fail at the end because the name
	// cannot be used.
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return exit.Usagef("%s exists: give another name", name)
	case err != nil:
		return err
	}
	servers, failed, err := a.collectZip(ctx, cluster, file, profile)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	if failed > 0 {
		a.say("%s could not be collected: errors.txt in %s says why", plural(failed, "item"), name)
	}
	a.say("look through %s before you pass it on", name)
	list := a.list(output.Column{Name: "file"}, output.Column{Name: "servers", Number: true},
		output.Column{Name: "not collected", Number: true})
	list.Row(name, servers, failed)
	return list.Flush()
}

func (a *app) collectZip(ctx context.Context, cluster *admin.Client, file *os.File,
	profile time.Duration) (servers, failed int, err error) {
	a.say("the cluster is examined")
	facts, err := doctor.Gather(ctx, cluster)
	if err != nil {
		return 0, 0, err
	}
	failed, err = bugreport.Write(ctx, file, cluster, facts, bugreport.Options{Version: buildVersion(),
		ProfileSeconds: int(profile / time.Second),
		Progress: func(server string, number, of int) {
			a.say("server %d of %d: %s", number, of, server)
		}})
	return len(facts.Servers), failed, err
}
