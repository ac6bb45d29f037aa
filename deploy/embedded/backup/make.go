package backup

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Make implements backups.Maker.
func (m *Maker) Make(ctx context.Context, b *clusterpb.Backup,
	progress func(*timestamp, *clusterpb.BackupProgress)) error {
	store, err := m.config.Open(ctx, b.Target)
	if err != nil {
		return err
	}
	defer store.Close()
	spec := job.Spec{ID: b.Id, Kind: manifest.Full, Parent: b.Parent, Includes: includes(b),
		Keep:  time.Duration(b.KeepMillis) * time.Millisecond,
		Began: time.UnixMilli(b.BeganUnixMs), Schedule: b.Schedule,
		ScheduleKeep: time.Duration(b.KeepMillis) * time.Millisecond}
	if b.Parent != "" {
		spec.Kind = manifest.Incremental
	}
	if spec.Recipients, err = archive.ParseRecipients(b.Recipients...); err != nil {
		return err
	}
	if b.Identity != "" {
		if spec.Identity, err = archive.ParseIdentities(b.Identity); err != nil {
			return err
		}
	}
	progress(nil, &clusterpb.BackupProgress{Step: "see that every node reaches the target"})
	c := &cluster{Maker: m, backup: b}
	if err := c.checkTarget(ctx, store); err != nil {
		return err
	}
	_, err = job.Run(ctx, spec, job.Config{Cluster: c, Target: store, Random: m.config.Random,
		Now: time.Now, Progress: func(p job.Progress) {
			progress(ts(p.At), &clusterpb.BackupProgress{Step: p.Step, UnitsDone: uint32(p.Done),
				Units: uint32(p.Units), Records: p.Totals.Records, Bytes: p.Totals.Bytes,
				StoredBytes: p.Totals.Stored, Failures: uint32(p.Failures), LastFailure: p.LastFail})
		}})
	return err
}

// Undo implements backups.Maker.
func (m *Maker) Undo(ctx context.Context, b *clusterpb.Backup) error {
	if b.Restore != nil {
		return m.undoRestore(ctx, b)
	}
	all, err := m.config.Core().ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	// The protection ends first, because that does not need the target.
	c := &cluster{Maker: m, backup: b}
	for _, ks := range all.GetKeyspaces() {
		if err := c.Unprotect(ctx, ks.GetKeyspace().GetName(), b.Id); err != nil {
			return err
		}
	}
	store, err := m.config.Open(ctx, b.Target)
	if err != nil {
		return err
	}
	defer store.Close()
	return job.Cancel(ctx, b.Id, c, store, nil)
}
