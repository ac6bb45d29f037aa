package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// identityFlag registers the flag for the file of identities that decrypt backups.
func identityFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("identity", "", "a `file` of age identities, for encrypted backups")
}

func (a *app) backupListCommand() *cobra.Command {
	return a.printing(&cobra.Command{
		Use:   "list TARGET",
		Short: "List the backups in a target",
		Long: `List the backups in TARGET by the moments that they restore. A backup without a moment
is not complete, as it is being made or was given up, or it is damaged. The chain of an incremental
backup is whole if all backups that it continues are there. With a log and the backups, every moment
from "since" to "moment" can be restored ("tidemark restore --at").`,
		Example: `  tidemark backup list file:///mnt/backups`,
		Args:    arguments("TARGET", 1, 1),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withCatalog(ctx, args[0], "", func(_ target.Target, c *catalog.Catalog) error {
				contents, err := c.List(ctx)
				if err != nil {
					return err
				}
				logs, damaged, err := c.Logs(ctx)
				if err != nil {
					return err
				}
				maps.Copy(damaged, contents.Damaged)
				return a.printContents(contents, logs, damaged)
			})
		}),
	})
}

// printContents prints backups and logs. damaged has the ids of backups and logs with damaged heads.
func (a *app) printContents(contents *catalog.Contents, logs []catalog.Log,
	damaged map[string]error) error {
	list := a.list(output.Column{Name: "id"}, output.Column{Name: "kind"},
		output.Column{Name: "since"}, output.Column{Name: "moment"}, output.Column{Name: "parent"}, output.Column{Name: "chain"},
		output.Column{Name: "keyspaces", Number: true}, output.Column{Name: "records", Number: true},
		output.Column{Name: "bytes", Number: true}, output.Column{Name: "stored", Number: true},
		output.Column{Name: "encrypted"}, output.Column{Name: "cluster", Programs: true},
		output.Column{Name: "version", Programs: true}, output.Column{Name: "took", Programs: true},
		output.Column{Name: "schedule", Programs: true})
	for _, h := range contents.Complete.Sorted() {
		chain := output.Toned("whole", output.Good)
		if _, err := contents.Complete.Chain(h.ID); err != nil {
			chain = output.Toned("broken", output.Bad)
		}
		list.Row(h.ID, string(h.Kind), "", atMoment(h.At.Timestamp), h.Parent, chain,
			h.Totals.Keyspaces, h.Totals.Records, h.Totals.Bytes, h.Totals.Stored, h.Recipients > 0,
			h.Cluster, h.Version, h.Ended.Sub(h.Began).Round(time.Millisecond), h.Schedule)
	}
	for i := range logs {
		l := &logs[i]
		chain, since, through := output.Toned("no backup", output.Warning), atMoment(l.First),
			atMoment(l.Through)
		if span, ok := l.Restorable(contents.Complete); ok {
			chain, since = output.Toned("whole", output.Good), atMoment(span.From)
		}
		list.Row(l.ID, "log", since, through, "", chain, len(l.LogHead.Keyspaces), 0, 0, 0,
			l.Recipients > 0, l.Cluster, l.Version, time.Duration(0), l.Schedule)
	}
	for _, id := range slices.Sorted(maps.Keys(damaged)) {
		list.Row(id, "damaged", "", "", "", output.Toned("broken", output.Bad), 0, 0, 0, 0, "", "", "",
			time.Duration(0), "")
	}
	for _, u := range contents.Unfinished {
		list.Row(u.ID, "not complete", "", "", "", "", 0, 0, 0, u.Bytes, "", "", "", time.Duration(0),
			"")
	}
	return list.Flush()
}

func (a *app) backupShowCommand() *cobra.Command {
	var identity *string
	var settings bool
	cmd := &cobra.Command{
		Use:   "show TARGET ID",
		Short: "Show the keyspaces of a backup",
		Long: `Show the keyspaces of a backup and of the backups that it continues, and how many records
of each keyspace each backup has. With --settings, show instead what placement was allowed to do,
which "tidemark restore --settings" sets.`,
		Example: `  tidemark backup show file:///mnt/backups 20260131T120000Z-1a2b3c4d
  tidemark backup show file:///mnt/backups 20260131T120000Z-1a2b3c4d --settings`,
		Args: arguments("TARGET and the ID of a backup", 2, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withCatalog(ctx, args[0], *identity, func(_ target.Target,
				c *catalog.Catalog) error {
				layers, err := c.Layers(ctx, args[1])
				if err != nil {
					return err
				}
				if settings {
					s, err := settingsOf(layers[len(layers)-1])
					if err != nil {
						return err
					}
					return a.printPlacement(s)
				}
				return a.printLayers(layers)
			})
		}),
	}
	cmd.Flags().BoolVar(&settings, "settings", false, "show what placement was allowed to do")
	identity = identityFlag(cmd)
	return a.printing(cmd)
}

// settingsOf returns the settings of placement in a backup.
func settingsOf(m *manifest.Manifest) (s admin.PlacementSettings, err error) {
	if len(m.Settings) == 0 {
		return s, exit.NotFoundf("the backup %s has no settings of placement: an earlier version made it",
			m.Head.ID)
	}
	if s, err = admin.DecodePlacement(m.Settings); err != nil {
		return s, fmt.Errorf("the settings of placement in %s: %w", m.Head.ID, err)
	}
	return s, nil
}

func (a *app) printLayers(layers manifest.Layers) error {
	list := a.list(output.Column{Name: "backup"}, output.Column{Name: "moment"},
		output.Column{Name: "keyspace"}, output.Column{Name: "partitions", Number: true},
		output.Column{Name: "changes since"}, output.Column{Name: "records", Number: true},
		output.Column{Name: "bytes", Number: true}, output.Column{Name: "stored", Number: true})
	for _, m := range layers {
		for i := range m.Keyspaces {
			ks := &m.Keyspaces[i]
			t := m.SumOf(ks.ID)
			list.Row(m.Head.ID, atMoment(m.Head.At.Timestamp), ks.Name, len(ks.Splits)+1,
				atMoment(ks.After.Timestamp), t.Records, t.Bytes, t.Stored)
		}
	}
	return list.Flush()
}

func (a *app) backupVerifyCommand() *cobra.Command {
	var identity *string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "verify TARGET [ID]",
		Short: "Read every byte of backups, and say what can be restored",
		Long: `Read every byte of a backup and of those that it continues, or of all backups in TARGET,
and say which can be restored. Everything is compared with its checksums, records are read, and the
chains and the parts of each keyspace must be whole. No cluster is needed.

An encrypted backup without --identity is read too, but only compared with its checksums.

The exit code is 7 if a backup cannot be restored.`,
		Example: `  tidemark backup verify file:///mnt/backups
  tidemark backup verify s3://backups/prod 20260131T120000Z-1a2b3c4d --identity key.txt`,
		Args: arguments("TARGET, and perhaps the ID of a backup", 1, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			id := ""
			if len(args) == 2 {
				id = args[1]
			}
			return a.withCatalog(ctx, args[0], *identity, func(_ target.Target,
				c *catalog.Catalog) error {
				return a.backupVerify(ctx, c, id, quiet)
			})
		}),
	}
	identity = identityFlag(cmd)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show progress")
	return a.printing(cmd)
}

func (a *app) backupVerify(ctx context.Context, c *catalog.Catalog, id string, quiet bool) error {
	shown := progress.Start(progress.Options{Out: a.err, Terminal: a.errTerminal, Width: a.errWidth,
		Quiet: quiet, What: "verify", Unit: "bytes"})
	found, err := c.Verify(ctx, id, func(t manifest.Totals) { shown.Set(t.Stored) })
	shown.Stop()
	if err != nil {
		return err
	}
	list := a.list(output.Column{Name: "restorable", Number: true},
		output.Column{Name: "problems", Number: true}, output.Column{Name: "first moment"},
		output.Column{Name: "last moment"}, output.Column{Name: "objects", Number: true},
		output.Column{Name: "records", Number: true}, output.Column{Name: "bytes read", Number: true})
	first, last := output.Cell{}, output.Cell{}
	if n := len(found.Backups); n > 0 {
		first, last = atMoment(found.Backups[0].At.Timestamp), atMoment(found.Backups[n-1].At.Timestamp)
	}
	list.Row(len(found.Backups), len(found.Problems), first, last, found.Totals.Pieces,
		found.Totals.Records, found.Totals.Stored)
	if err := list.Flush(); err != nil {
		return err
	}
	for _, l := range found.Logs {
		if l.Restorable.Through.IsZero() {
			a.say("the log %s is whole, and there is no backup that it continues", l.ID)
			continue
		}
		a.say("every moment from %s to %s can be restored (log %s)",
			l.From.Time().Local().Format(time.DateTime), l.Through.Time().Local().Format(time.DateTime),
			l.ID)
	}
	if found.Sealed {
		a.say("some backups are encrypted: their objects are what was written, and what is in them was " +
			"not looked at; give --identity")
	}
	if len(found.Problems) > 0 {
		return &exit.Error{Code: exit.Degraded, Err: errors.New(strings.Join(found.Problems, "; "))}
	}
	return nil
}

func (a *app) backupDeleteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete TARGET ID",
		Short: "Delete a backup or a log, and all that was written for it",
		Long: `Delete a backup from TARGET, complete or not, with everything that was left over from
attempts at it. A backup that others continue is not deleted: delete these first. With the id of a
log the whole log is deleted; pause its schedule before.`,
		Example: `  tidemark backup delete file:///mnt/backups 20260131T120000Z-1a2b3c4d`,
		Args:    arguments("TARGET and the ID of a backup", 2, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withCatalog(ctx, args[0], "", func(_ target.Target, c *catalog.Catalog) error {
				if err := a.confirm(yes, fmt.Sprintf("Delete %s from %s?", args[1],
					args[0])); err != nil {
					return err
				}
				removed, err := c.Delete(ctx, args[1])
				if err == nil {
					var ofLog int
					ofLog, err = c.DeleteLog(ctx, args[1])
					removed += ofLog
				}
				if errors.Is(err, catalog.ErrNeeded) {
					return &exit.Error{Code: exit.Conflict, Err: err}
				}
				if err != nil {
					return err
				}
				list := a.list(output.Column{Name: "id"}, output.Column{Name: "objects", Number: true})
				list.Row(args[1], removed)
				return list.Flush()
			})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return a.printing(cmd)
}

func (a *app) backupCatCommand() *cobra.Command {
	var identity *string
	var span argument.Span
	var at string
	format := string(records.TSV)
	cmd := &cobra.Command{
		Use:   "cat TARGET [ID] KEYSPACE",
		Short: "Print the records of a keyspace from a backup",
		Long: `Print the records of a keyspace as they were at the moment of a backup, or with --at at any
moment that the backups and the log have, in the formats of "tidemark dump". No cluster is needed.
Records of a range keyspace come in the order of their keys; those of a hash keyspace in that of its
hash partitions.`,
		Example: `  tidemark backup cat file:///mnt/backups 20260131T120000Z-1a2b3c4d fruit --prefix a
  tidemark backup cat file:///mnt/backups fruit --at 2026-01-31T12:03:20Z`,
		Args: arguments("TARGET, the ID of a backup or --at, and a KEYSPACE", 2, 3),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			switch a.format {
			case output.JSON:
				format = string(records.JSONL)
			case output.TSV:
				format = string(records.TSV)
			case output.Raw:
				return exit.Usagef("--output raw: use tsv or json")
			}
			parsed, err := records.ParseFormat(format)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			wanted, err := span.Keys()
			if err != nil {
				return err
			}
			if (len(args) == 3) == (at != "") {
				return exit.Usagef("give the ID of a backup, or a moment: --at TIME")
			}
			return a.withCatalog(ctx, args[0], *identity, func(_ target.Target,
				c *catalog.Catalog) error {
				keyspace := args[len(args)-1]
				point, err := pointOf(ctx, c, args[1], at,
					func(name string) bool { return name == keyspace })
				if err != nil {
					return err
				}
				return a.backupCat(ctx, c, point, keyspace, wanted, parsed)
			})
		}),
	}
	identity = identityFlag(cmd)
	span.Register(cmd)
	cmd.Flags().StringVar(&at, "at", "", restoreMomentHelp)
	cmd.Flags().StringVar(&format, "format", format, "tsv or jsonl")
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions([]string{"tsv", "jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	a.printing(cmd)
	cmd.Flags().Lookup("output").Usage = "tsv or json, for --format tsv and jsonl"
	cmd.MarkFlagsMutuallyExclusive("output", "format")
	return cmd
}

func (a *app) backupCat(ctx context.Context, c *catalog.Catalog, point *manifest.Point,
	keyspace string, span keys.Span, format records.Format) error {
	ks := point.KeyspaceNamed(keyspace)
	if ks == nil {
		return exit.NotFoundf("there was no keyspace %q at %s; \"tidemark backup show\" lists the keyspaces "+
			"of a backup", keyspace, point.At.Time().Local().Format(time.RFC3339))
	}
	var definition struct {
		DefaultTTLMillis json.Number `json:"defaultTtlMillis"`
	}
	if err := json.Unmarshal(ks.Definition, &definition); err != nil {
		return fmt.Errorf("the definition of the keyspace %q: %w", ks.Name, err)
	}
	buffered := bufio.NewWriterSize(a.out, 256<<10)
	writer := records.NewWriter(buffered, format)
	for _, rows := range ks.RowsOf(span) {
		for r, err := range c.Records(ctx, point, ks, rows) {
			if err != nil {
				_ = buffered.Flush()
				return err
			}
			// As in a dump: in a keyspace with a default, a value without an expiry says so.
			record := records.Record{Key: ks.UserKey(r.Key), Value: r.Value,
				Forever: r.Expiry == 0 && definition.DefaultTTLMillis != ""}
			if r.Expiry != 0 {
				record.Expires = time.Unix(0, r.Expiry).UTC()
			}
			if err := writer.Write(record); err != nil {
				return err
			}
		}
	}
	return buffered.Flush()
}
