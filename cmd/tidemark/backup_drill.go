package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/drill"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// drillFlags are the flags of a restore drill.
type drillFlags struct {
	restoreFlags
	dir   string
	nodes int
}

func backupDrillCommand(a *app) *cobra.Command {
	var f drillFlags
	cmd := &cobra.Command{
		Use:   "drill TARGET [ID]",
		Short: "Restore a backup into a cluster of its own, and compare every record",
		Long: `Prove that a backup can be restored: start a cluster in this process and in a directory of
its own, restore the backup there as "tidemark restore" does, and compare every record of every
keyspace with the backup: key, value and expiry. Nothing touches the cluster that was backed up. The
directory is removed at the end, also after Ctrl-C. Without ID the newest backup in TARGET is taken,
and with --at a moment that the backups and the log of a schedule have.

The cluster has as many nodes as the keyspaces have replicas, three at least, and each keeps a copy:
the directory needs three times the size of the records and some more.

Records that have expired since the moment of the backup are not compared. The exit code is 7 if
anything differs.`,
		Example: `  tidemark backup drill file:///mnt/backups
  tidemark backup drill s3://backups/prod 20260131T120000Z-1a2b3c4d --keyspaces 'user*'`,
		Args: arguments("TARGET, and perhaps the ID of a backup", 1, 2),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			for _, pattern := range append(f.include[:len(f.include):len(f.include)], f.exclude...) {
				if _, err := path.Match(pattern, ""); err != nil {
					return exit.Usagef("the pattern %q: %v", pattern, err)
				}
			}
			if f.nodes < 0 || f.nodes > 100 {
				return exit.Usagef("--nodes %d: use 1 to 100", f.nodes)
			}
			return a.withCatalog(ctx, args[0], f.identity, func(_ target.Target,
				c *catalog.Catalog) error {
				d := &restoreDrill{app: a, flags: f, catalog: c, url: args[0]}
				if len(args) == 2 {
					d.id = args[1]
				}
				if d.id != "" && f.at != "" {
					return exit.Usagef("give the ID of a backup, or a moment: --at TIME")
				}
				return d.run(ctx)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.include, "keyspaces", nil,
		"only these keyspaces, as names or patterns with * (default: all)")
	flags.StringSliceVar(&f.exclude, "exclude", nil, "leave out these keyspaces")
	flags.StringVar(&f.identity, "identity", "", "a `file` of age identities, for encrypted backups")
	flags.StringVar(&f.at, "at", "", restoreMomentHelp)
	flags.StringVar(&f.dir, "dir", "",
		"make the cluster's directory in this one (default: where temporary files are)")
	flags.IntVar(&f.nodes, "nodes", 0, "number of data nodes (default: what the keyspaces need)")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "do not show progress")
	_ = cmd.MarkFlagDirname("dir")
	return a.printing(cmd)
}

// restoreDrill is a running restore drill.
type restoreDrill struct {
	*app
	flags   drillFlags
	catalog *catalog.Catalog
	url, id string
	// log is the log that the moment needs. It is empty if the moment needs none.
	log    string
	point  *manifest.Point
	chosen []*manifest.Keyspace
}

func (d *restoreDrill) run(ctx context.Context) (err error) {
	if err := d.choose(ctx); err != nil {
		return err
	}
	nodes, err := d.nodes()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.flags.dir, "tidemark-drill-")
	if err != nil {
		return fmt.Errorf("making the directory of the cluster: %w; give one with --dir", err)
	}
	defer func() {
		if removing := os.RemoveAll(dir); err == nil && removing != nil {
			err = fmt.Errorf("the directory %s is still there: %w", dir, removing)
		}
	}()
	d.note("starting a cluster of %s in %s", plural(nodes, "node"), dir)
	cluster, err := embedded.StartCluster(ctx, embedded.ClusterConfig{Dir: dir, Nodes: nodes, Cores: 1,
		Listen: "127.0.0.1:0", Version: buildVersion(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() {
		if closing := cluster.Close(); err == nil && closing != nil {
			err = fmt.Errorf("the cluster of the drill did not stop cleanly: %w", closing)
		}
	}()
	if err := cluster.WaitReady(ctx); err != nil {
		return err
	}
	client, err := kv.Open(ctx, cluster.Endpoints())
	if err != nil {
		return err
	}
	defer client.Close()
	if err := d.restore(ctx, client); err != nil {
		return err
	}
	return d.compare(ctx, client)
}

// note prints a message about the progress.
func (d *restoreDrill) note(format string, args ...any) {
	if !d.flags.quiet {
		d.say(format, args...)
	}
}

// choose reads what the backup contains, and chooses keyspaces.
func (d *restoreDrill) choose(ctx context.Context) (err error) {
	found := catalog.Resolved{Backup: d.id}
	switch {
	case d.flags.at != "":
		moment, err := restoreMoment(d.flags.at)
		if err != nil {
			return err
		}
		if found, err = d.catalog.Resolve(ctx, moment, d.wants()); err != nil {
			return err
		}
		d.id = found.Backup
	case d.id == "":
		contents, err := d.catalog.List(ctx)
		if err != nil {
			return err
		}
		if len(contents.Complete)+len(contents.Damaged) == 0 {
			return exit.NotFoundf("%s has no complete backup", d.url)
		}
		newest, err := contents.Newest()
		if err != nil {
			return fmt.Errorf("%s: %w", d.url, err)
		}
		d.id = newest.ID
		found.Backup = d.id
	case manifest.CheckID(d.id) != "":
		return exit.Usagef("%s", manifest.CheckID(d.id))
	}
	d.log = found.Log
	if d.point, err = d.catalog.Point(ctx, found.Backup, found.Log, found.At); err != nil {
		return err
	}
	wants := d.wants()
	for i := range d.point.Keyspaces {
		if wants != nil && !wants(d.point.Keyspaces[i].Name) {
			continue
		}
		d.chosen = append(d.chosen, &d.point.Keyspaces[i])
	}
	if len(d.chosen) == 0 {
		return exit.NotFoundf("the backup %s has no such keyspace, or none at all; \"tidemark backup "+
			"show\" lists its keyspaces", d.id)
	}
	return nil
}

// wants returns a predicate for the keyspaces that the flags choose. It returns nil for all.
func (d *restoreDrill) wants() func(keyspace string) bool {
	if len(d.flags.include)+len(d.flags.exclude) == 0 {
		return nil
	}
	matches := func(patterns []string, name string) bool {
		for _, pattern := range patterns {
			if ok, _ := path.Match(pattern, name); ok {
				return true
			}
		}
		return false
	}
	return func(name string) bool {
		return (len(d.flags.include) == 0 || matches(d.flags.include, name)) &&
			!matches(d.flags.exclude, name)
	}
}

// nodes returns the number of nodes that the keyspaces need.
func (d *restoreDrill) nodes() (int, error) {
	n := 3
	for _, ks := range d.chosen {
		var definition struct {
			ReplicationFactor int `json:"replicationFactor"`
		}
		if err := json.Unmarshal(ks.Definition, &definition); err != nil {
			return 0, fmt.Errorf("the definition of the keyspace %q: %w", ks.Name, err)
		}
		n = max(n, definition.ReplicationFactor)
	}
	if d.flags.nodes > 0 {
		n = d.flags.nodes
	}
	return n, nil
}

// restore restores the backup into the drill's cluster.
func (d *restoreDrill) restore(ctx context.Context, client *kv.Client) error {
	r := &admin.RestoreOptions{Backup: d.id}
	if d.log != "" {
		r.Backup, r.At = "", d.point.At
	}
	if d.flags.identity != "" {
		text, err := os.ReadFile(d.flags.identity)
		if err != nil {
			return err
		}
		r.Identities = string(text)
	}
	d.note("restoring the backup %s", d.id)
	job, err := admin.New(client).CreateBackup(ctx, admin.BackupOptions{Target: d.url,
		Include: d.flags.include, Exclude: d.flags.exclude, Restore: r})
	if err != nil {
		return err
	}
	for pause, before := looking(0), ""; ; {
		if job, err = admin.New(client).Backup(ctx, job.ID); err != nil {
			return err
		}
		if job.Over() {
			break
		}
		text := job.Step
		if job.Units > 0 {
			text = fmt.Sprintf("%s: %d of %d parts, %d records", job.Step, job.UnitsDone, job.Units,
				job.Records)
		}
		if text != before {
			d.note("%s", text)
			before = text
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause.next()):
		}
	}
	if job.State != admin.BackupComplete {
		return fmt.Errorf("the backup %s was not restored: %s", d.id, job.Error)
	}
	return nil
}

// compare compares all keyspaces, and prints the result.
func (d *restoreDrill) compare(ctx context.Context, client *kv.Client) error {
	list := d.list(output.Column{Name: "keyspace"}, output.Column{Name: "compared", Number: true},
		output.Column{Name: "expired since", Number: true},
		output.Column{Name: "differences", Number: true}, output.Column{Name: "took"},
		output.Column{Name: "backup", Programs: true}, output.Column{Name: "moment", Programs: true})
	var wrong []string
	for _, ks := range d.chosen {
		began := time.Now()
		shown := progress.Start(progress.Options{Out: d.err, Terminal: d.errTerminal,
			Width: d.errWidth, Quiet: d.flags.quiet, What: "compare " + ks.Name, Unit: "records"})
		restored := client.Keyspace(ks.Name)
		found, err := drill.Compare(ctx, drill.Source{
			Stored: func(ctx context.Context) iter.Seq2[drill.Record, error] {
				return d.stored(ctx, ks)
			},
			Get: func(ctx context.Context, userKeys [][]byte) ([]kv.Pair, error) {
				return restored.BatchGet(ctx, userKeys)
			},
			Scan:     func(ctx context.Context) iter.Seq2[kv.Pair, error] { return restored.Scan(ctx) },
			Progress: shown.Set,
		})
		shown.Stop()
		if err != nil {
			return fmt.Errorf("comparing the keyspace %q: %w", ks.Name, err)
		}
		list.Row(ks.Name, found.Compared, found.Expired, found.Differences,
			time.Since(began).Round(time.Millisecond), d.id,
			d.point.At.String())
		if found.Differences > 0 {
			wrong = append(wrong, inWords(ks.Name, found))
		}
	}
	if err := list.Flush(); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return &exit.Error{Code: exit.Degraded, Err: errors.New("what was restored is not what the " +
			"backup has: " + strings.Join(wrong, "; "))}
	}
	return nil
}

// stored returns the records of a keyspace in the backup.
func (d *restoreDrill) stored(ctx context.Context,
	ks *manifest.Keyspace) iter.Seq2[drill.Record, error] {
	return func(yield func(drill.Record, error) bool) {
		for _, rows := range ks.RowsOf(keys.Span{}) {
			for r, err := range d.catalog.Records(ctx, d.point, ks, rows) {
				if err != nil {
					yield(drill.Record{}, err)
					return
				}
				one := drill.Record{Key: ks.UserKey(r.Key), Value: r.Value}
				if r.Expiry != 0 {
					one.Expires = time.Unix(0, r.Expiry)
				}
				if !yield(one, nil) {
					return
				}
			}
		}
	}
}

// inWords names the first differing records of a keyspace.
func inWords(keyspace string, found *drill.Result) string {
	var rows []string
	for _, one := range found.First {
		rows = append(rows, fmt.Sprintf("%s (%s)", records.AppendEscaped(nil, one.Key), one.Kind))
	}
	more := ""
	if n := found.Differences - uint64(len(found.First)); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("keyspace %s: %s%s", keyspace, strings.Join(rows, ", "), more)
}
