package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/deploy/embedded/backup"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// restoreFlags are the flags of a restore.
type restoreFlags struct {
	include, exclude, as                []string
	identity, at                        string
	detach, quiet                       bool
	coordination, settings, noKeyspaces bool
}

func (a *app) restoreCommand() *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use:   "restore TARGET [ID]",
		Short: "Restore keyspaces, and perhaps the coordination store, from a backup",
		Long: `Restore keyspaces from a backup into this cluster, which may be another one than that of
the backup. Without ID, the newest backup in TARGET is restored. With --at, keyspaces are restored
as they were at a moment that the backups and the log of a schedule have ("tidemark backup list"
shows which), to the nanosecond; "--at latest" is the last such moment.

Keyspaces have the definitions, records and expiries that they had at the moment. They must not be
there yet: drop them first, or give them other names with --as.

The data nodes read the backup and write the records. Clients see the keyspaces when all are whole,
and not before. The core's leader has that done, whatever becomes of this command; "tidemark backup
jobs" shows how far it is, and "tidemark backup cancel" ends it and drops what was made.

With --coordination the coordination store is filled, too: keys with their revisions and leases,
users with their passwords, roles, and whether authentication is on. It must be empty, without
users too. It goes on at a revision far above that of the backup, as after "tidemark coord import":
clients that ask for earlier revisions are told that they were compacted, and fencing tokens go on
rising. Leases run from the restore on. With --settings, placement may do what it was allowed at the
moment of the backup. --no-keyspaces restores only these.

Not restored: the versions of records (each has a new one), what was there before the moment, the
history of the coordination store, rights of roles for keyspaces that are not in the cluster, and
consumers of changes. Without --coordination, "tidemark backup coordination" writes the coordination
store into a file for "tidemark coord import".`,
		Example: `  tidemark restore file:///mnt/backups
  tidemark restore s3://backups/prod 20260131T120000Z-1a2b3c4d --keyspaces fruit --as fruit=old
  tidemark restore s3://backups/prod --at 2026-01-31T12:03:20Z --keyspaces fruit --as fruit=before
  tidemark restore file:///mnt/backups --coordination --settings`,
		Args: arguments("TARGET, and perhaps the ID of a backup", 1, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			id := admin.LatestBackup
			if len(args) == 2 {
				id = args[1]
			}
			if len(args) == 2 && f.at != "" {
				return exit.Usagef("give the ID of a backup, or a moment: --at TIME")
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				return a.restore(ctx, client, args[0], id, f)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.include, "keyspaces", nil,
		"only these keyspaces, as names or patterns with * (default: all)")
	flags.StringSliceVar(&f.exclude, "exclude", nil, "leave out these keyspaces")
	flags.StringSliceVar(&f.as, "as", nil, "another name for a keyspace: NAME=OTHER; may be repeated")
	flags.StringVar(&f.identity, "identity", "", "a `file` of age identities, for an encrypted backup")
	flags.StringVar(&f.at, "at", "", restoreMomentHelp)
	flags.BoolVar(&f.coordination, "coordination", false,
		"fill the coordination store, which must be empty, with its users and roles")
	flags.BoolVar(&f.settings, "settings", false, "set what placement may do as it was")
	flags.BoolVar(&f.noKeyspaces, "no-keyspaces", false,
		"restore no keyspaces, but what --coordination and --settings say")
	flags.BoolVar(&f.detach, "detach", false, "do not wait until it is complete")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "do not show progress")
	return a.client(a.printing(cmd))
}

// restoreMomentHelp describes --at for commands that read a target.
const restoreMomentHelp = "a moment: " + argument.MomentHelp + `, or "latest"`

// restoreMoment parses --at. Relative times use this machine's clock, because there may be no
// cluster.
func restoreMoment(text string) (hlc.Timestamp, error) {
	if text == "latest" {
		return catalog.Newest, nil
	}
	m, err := argument.ParseMoment(text)
	if err != nil {
		return hlc.Timestamp{}, err
	}
	return m.At(hlc.FromTime(time.Now()))
}

func (a *app) restore(ctx context.Context, client *kv.Client, url, id string,
	f restoreFlags) error {
	r := &admin.RestoreOptions{Backup: id, Names: make(map[string]string),
		Coordination: f.coordination, Settings: f.settings, NoKeyspaces: f.noKeyspaces}
	switch {
	case f.noKeyspaces && !f.coordination && !f.settings:
		return exit.Usagef("--no-keyspaces leaves nothing: give --coordination or --settings")
	case f.noKeyspaces && len(f.include)+len(f.exclude)+len(f.as) > 0:
		return exit.Usagef("--no-keyspaces restores none: leave out --keyspaces, --exclude and --as")
	}
	if f.at != "" {
		at, err := restoreMoment(f.at)
		if err != nil {
			return err
		}
		r.Backup = ""
		if r.Newest = at == catalog.Newest; !r.Newest {
			r.At = at
		}
	}
	for _, pair := range f.as {
		name, other, ok := strings.Cut(pair, "=")
		if !ok || name == "" || other == "" {
			return exit.Usagef("--as %q: give NAME=OTHER", pair)
		}
		r.Names[name] = other
	}
	if f.identity != "" {
		text, err := os.ReadFile(f.identity)
		if err != nil {
			return err
		}
		if _, err := archive.ParseIdentities(string(text)); err != nil {
			return fmt.Errorf("%s: %w", f.identity, err)
		}
		r.Identities = string(text)
	}
	job, err := admin.New(client).CreateBackup(ctx, admin.BackupOptions{Target: url,
		Include: f.include, Exclude: f.exclude, Restore: r})
	if err != nil {
		return err
	}
	if !f.detach {
		id := job.ID
		job, err = a.followBackup(ctx, client, id, f.quiet)
		if f.coordination && errors.Is(err, kv.ErrUnauthenticated) {
			// Authentication is enabled now, as in the backup, and this client has not logged in.
			err = a.withClient(ctx, func(client *kv.Client) (err error) {
				job, err = a.followBackup(ctx, client, id, f.quiet)
				return err
			})
			if err != nil {
				err = fmt.Errorf("the coordination store is filled, and clients are authenticated from now "+
					"on; `tidemark backup jobs --user root` says what becomes of the restore %s: %w", id, err)
			}
		}
		if err != nil {
			return err
		}
	}
	if err := a.printBackups([]admin.BackupInfo{job}); err != nil {
		return err
	}
	switch {
	case job.State == admin.BackupFailed:
		return fmt.Errorf("the restore %s failed: %s. `tidemark backup cancel %s` drops what it has made",
			job.ID, job.Error, job.ID)
	case !f.detach && job.State != admin.BackupComplete:
		return fmt.Errorf("the restore %s was cancelled", job.ID)
	}
	return nil
}

func (a *app) backupCoordinationCommand() *cobra.Command {
	var identity *string
	var at string
	cmd := &cobra.Command{
		Use:   "coordination TARGET [ID] FILE",
		Short: "Write the coordination store of a backup into a file",
		Long: `Write the coordination store of a backup into FILE, in the format of etcd's snapshots, or
with --at as it was at the end of the last round of the log at or before a moment.
"tidemark coord import" makes a coordination store of it, and "etcdutl snapshot restore" an etcd.`,
		Example: `  tidemark backup coordination file:///mnt/backups 20260131T120000Z-1a2b3c4d coord.db
  tidemark coord import coord.db --skip-hash-check`,
		Args: arguments("TARGET, the ID of a backup or --at, and a FILE", 2, 3),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			if (len(args) == 3) == (at != "") {
				return exit.Usagef("give the ID of a backup, or a moment: --at TIME")
			}
			return a.withCatalog(ctx, args[0], *identity, func(_ target.Target,
				c *catalog.Catalog) error {
				point, err := pointOf(ctx, c, args[1], at, catalog.NoKeyspaces)
				if err != nil {
					return err
				}
				path := args[len(args)-1]
				size, err := writeCoordination(ctx, c, point, path)
				if err != nil {
					return err
				}
				list := a.list(output.Column{Name: "file"}, output.Column{Name: "bytes", Number: true})
				list.Row(path, size)
				return list.Flush()
			})
		}),
	}
	identity = identityFlag(cmd)
	cmd.Flags().StringVar(&at, "at", "", restoreMomentHelp)
	return a.printing(cmd)
}

// pointOf reads a backup from a target, or a moment if it is given. wants is the argument of
// catalog.Resolve.
func pointOf(ctx context.Context, c *catalog.Catalog, id, at string,
	wants func(keyspace string) bool) (*manifest.Point, error) {
	found := catalog.Resolved{Backup: id}
	if at != "" {
		moment, err := restoreMoment(at)
		if err != nil {
			return nil, err
		}
		if found, err = c.Resolve(ctx, moment, wants); err != nil {
			return nil, err
		}
	}
	return c.Point(ctx, found.Backup, found.Log, found.At)
}

// writeCoordination writes the coordination store of a moment to a new file.
func writeCoordination(ctx context.Context, c *catalog.Catalog, p *manifest.Point,
	path string) (size int64, err error) {
	if _, err := os.Lstat(path); err == nil {
		return 0, fmt.Errorf("%s is there already", path)
	}
	directory, err := os.MkdirTemp(filepath.Dir(path), ".tidemark-coordination-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	made, err := backup.Coordination(ctx, c, p, directory)
	if err != nil {
		return 0, err
	}
	file, err := os.Open(made)
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	return info.Size(), os.Rename(made, path)
}
