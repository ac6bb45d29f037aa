package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

func (a *app) backupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Back the cluster up, and look at backups",
		Long: `Back the cluster up into a directory or a bucket, and look at the backups there.

A TARGET is a URL. file:///DIRECTORY is a directory that all servers share, such as a network file
system. s3://BUCKET/PREFIX is a bucket of S3 or of a compatible service; ?endpoint=, &region= and
&path-style=true say where it is. A TARGET has no credentials: every server, and this command, take
them from their environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), ~/.aws/credentials, or
the role of the machine.

create, jobs, cancel and schedule ask the cluster. The other commands read the target, and need no
cluster.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.backupCreateCommand(), a.backupJobsCommand(), a.backupCancelCommand(),
		a.backupListCommand(), a.backupShowCommand(), a.backupVerifyCommand(), a.backupCatCommand(),
		a.backupCoordinationCommand(), a.backupDeleteCommand(), backupDrillCommand(a),
		schedules{a}.command())
	return cmd
}

// backupFlags are the flags of a new backup.
type backupFlags struct {
	incremental, detach, quiet bool
	parent                     string
	include, exclude           []string
	recipients                 []string
	rate                       argument.Size
	keep                       time.Duration
}

func (a *app) backupCreateCommand() *cobra.Command {
	var f backupFlags
	cmd := &cobra.Command{
		Use:   "create TARGET",
		Short: "Back the cluster up",
		Long: `Back up the whole cluster as it is at one moment: keyspaces with their definitions, and
the coordination service. Clients go on reading and writing meanwhile. The data nodes write straight
to TARGET, each from its own replicas.

The core's leader has the backup made, whatever becomes of this command: after an interruption, of a
server too, it continues where it stopped. This command shows the progress. "tidemark backup jobs"
shows it later, and "tidemark backup cancel" ends the backup.

With --incremental the backup has what has changed since the newest backup in TARGET, which must be
recent enough that the cluster still has that history (the GC window of each keyspace).

With --recipient the backup is encrypted: who has the identity can read it, and nobody else. Make an
identity with age-keygen, and keep it where the cluster is not.`,
		Example: `  tidemark backup create file:///mnt/backups
  tidemark backup create 's3://backups/prod?region=eu-central-1' --incremental
  tidemark backup create s3://backups/prod --recipient age1... --rate 20MiB`,
		Args: arguments("TARGET", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				return a.backupCreate(ctx, client, args[0], f)
			})
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.incremental, "incremental", false,
		"only what has changed since the newest backup in TARGET")
	flags.StringVar(&f.parent, "parent", "", "only what has changed since the backup with this id")
	flags.StringSliceVar(&f.include, "keyspaces", nil,
		"only these keyspaces, as names or patterns with * (default: all)")
	flags.StringSliceVar(&f.exclude, "exclude", nil, "leave out these keyspaces")
	flags.StringSliceVar(&f.recipients, "recipient", nil,
		"encrypt for this age recipient, age1...; may be repeated")
	flags.Var(&f.rate, "rate", "how much each node reads in a second at most (default: no limit)")
	flags.DurationVar(&f.keep, "keep-history", 24*time.Hour,
		"for how long at most garbage collection leaves what the backup reads")
	flags.BoolVar(&f.detach, "detach", false, "do not wait until it is complete")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "do not show progress")
	cmd.MarkFlagsMutuallyExclusive("incremental", "parent")
	return a.client(a.printing(cmd))
}

func (a *app) backupCreate(ctx context.Context, client *kv.Client, url string,
	f backupFlags) error {
	o := admin.BackupOptions{Target: url, Parent: f.parent, Include: f.include, Exclude: f.exclude,
		Recipients: f.recipients, BytesPerSecond: uint64(f.rate), Keep: f.keep}
	if f.incremental {
		o.Parent = admin.LatestBackup
	}
	if _, err := archive.ParseRecipients(f.recipients...); err != nil {
		return exit.Usagef("--recipient: %v", err)
	}
	backup, err := admin.New(client).CreateBackup(ctx, o)
	if err != nil {
		return err
	}
	if !f.detach {
		if backup, err = a.followBackup(ctx, client, backup.ID, f.quiet); err != nil {
			return err
		}
	}
	if err := a.printBackups([]admin.BackupInfo{backup}); err != nil {
		return err
	}
	switch {
	case backup.State == admin.BackupFailed:
		return fmt.Errorf("the backup %s failed: %s", backup.ID, backup.Error)
	case !f.detach && backup.State != admin.BackupComplete:
		return fmt.Errorf("the backup %s was cancelled", backup.ID)
	}
	return nil
}

// followBackup shows the progress of a backup until it has ended. If followBackup is interrupted,
// it prints how to follow the backup again.
func (a *app) followBackup(ctx context.Context, client *kv.Client, id string,
	quiet bool) (admin.BackupInfo, error) {
	before := ""
	for pause := looking(0); ; {
		b, err := persist(ctx, func() (admin.BackupInfo, error) {
			return admin.New(client).Backup(ctx, id)
		})
		if err == nil && b.Over() {
			return b, nil
		}
		if err != nil && ctx.Err() == nil {
			return b, err
		}
		text := b.Step
		if b.Units > 0 {
			text = fmt.Sprintf("%s: %d of %d parts, %d records, %d bytes stored", b.Step, b.UnitsDone,
				b.Units, b.Records, b.StoredBytes)
		}
		if b.LastFailure != "" {
			text += fmt.Sprintf("; %d attempts failed, the last one: %s", b.Failures, b.LastFailure)
		}
		if text != "" && text != before && !quiet {
			a.say("backup %s: %s", id, text)
			before = text
		}
		select {
		case <-ctx.Done():
			a.say("the cluster goes on with the backup %s; `tidemark backup jobs` shows how far it is, "+
				"and `tidemark backup cancel %s` ends it", id, id)
			return b, context.Cause(ctx)
		case <-time.After(pause.next()):
		}
	}
}

func (a *app) printBackups(all []admin.BackupInfo) error {
	list := a.list(output.Column{Name: "id"}, output.Column{Name: "state"},
		output.Column{Name: "kind"}, output.Column{Name: "moment"},
		output.Column{Name: "done", Number: true}, output.Column{Name: "parts", Number: true},
		output.Column{Name: "records", Number: true}, output.Column{Name: "bytes", Number: true},
		output.Column{Name: "stored", Number: true}, output.Column{Name: "target"},
		output.Column{Name: "step", Programs: true}, output.Column{Name: "error", Programs: true},
		output.Column{Name: "schedule", Programs: true})
	for _, b := range all {
		kind := "full"
		switch {
		case b.Restore != nil:
			kind = "restore of " + b.Restore.Backup
			if b.Restore.Log != "" {
				kind = "restore with " + b.Restore.Log
			}
		case b.Parent != "":
			kind = "incremental"
		}
		list.Row(b.ID, string(b.State), kind, atMoment(b.At), b.UnitsDone, b.Units, b.Records, b.Bytes,
			b.StoredBytes, b.Target, b.Step, b.Error, b.Schedule)
	}
	return list.Flush()
}

// atMoment returns a cell with a timestamp of the cluster. The cell is empty if the timestamp is
// not set.
func atMoment(ts kv.Timestamp) output.Cell {
	if ts.IsZero() {
		return output.Cell{People: "", Programs: ""}
	}
	return output.Cell{People: ts.Time().Local().Format(time.DateTime), Programs: ts.String()}
}

func (a *app) backupJobsCommand() *cobra.Command {
	return a.client(a.printing(&cobra.Command{
		Use:   "jobs",
		Short: "List the backups that the cluster makes, and the last ones that have ended",
		Args:  arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				all, err := admin.New(client).Backups(ctx)
				if err != nil {
					return err
				}
				return a.printBackups(all)
			})
		}),
	}))
}

func (a *app) backupCancelCommand() *cobra.Command {
	return a.client(a.printing(&cobra.Command{
		Use:   "cancel ID",
		Short: "End a backup that is not complete, and remove what was written of it",
		Args:  arguments("the ID of a backup", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				b, err := admin.New(client).CancelBackup(ctx, args[0])
				if err != nil {
					return err
				}
				if b, err = a.followBackup(ctx, client, b.ID, false); err != nil {
					return err
				}
				if err := a.printBackups([]admin.BackupInfo{b}); err != nil || b.Error == "" {
					return err
				}
				return fmt.Errorf("%s is cancelled, but %s", b.ID, b.Error)
			})
		}),
	}))
}

// withCatalog opens a target, and reads it with the identities of a file. Without a file it uses no
// identities.
func (a *app) withCatalog(ctx context.Context, url, identityFile string,
	do func(target.Target, *catalog.Catalog) error) error {
	var identities archive.Identities
	if identityFile != "" {
		text, err := os.ReadFile(identityFile)
		if err != nil {
			return err
		}
		if identities, err = archive.ParseIdentities(string(text)); err != nil {
			return fmt.Errorf("%s: %w", identityFile, err)
		}
	}
	store, err := target.Open(ctx, url, target.Options{OnRetry: func(operation, name string,
		err error) {
		a.say("%s of %s is tried again: %v", operation, name, err)
	}})
	if errors.Is(err, target.ErrInvalid) {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	if err != nil {
		return err
	}
	defer store.Close()
	err = do(store, catalog.New(store, identities))
	switch {
	case errors.Is(err, archive.ErrNoIdentity) && identityFile == "":
		return fmt.Errorf("%w. Give the identity: --identity FILE", err)
	case errors.Is(err, target.ErrNotFound):
		return &exit.Error{Code: exit.NotFound, Err: err}
	case errors.Is(err, target.ErrUnavailable):
		return &exit.Error{Code: exit.Unavailable, Err: err}
	}
	return err
}
