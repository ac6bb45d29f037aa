package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/backups"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/changelog"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// ofSchedule returns a backup with the parameters of a schedule.
func ofSchedule(s *clusterpb.BackupSchedule) *clusterpb.Backup {
	return &clusterpb.Backup{Target: s.Target, Include: s.Include, Exclude: s.Exclude,
		Recipients: s.Recipients, BytesPerSecond: s.BytesPerSecond, KeepMillis: s.KeepMillis,
		Schedule: s.Name}
}

// openLog is an open log of a schedule.
type openLog struct {
	store  target.Target
	writer *changelog.Writer
}

var _ backups.Log = (*openLog)(nil)

// OpenLog implements backups.Maker.
func (m *Maker) OpenLog(ctx context.Context, s *clusterpb.BackupSchedule) (backups.Log, error) {
	b := ofSchedule(s)
	spec := changelog.Spec{ID: s.Log, Schedule: s.Name, Includes: includes(b),
		Keep: time.Duration(s.KeepMillis) * time.Millisecond}
	var err error
	if spec.Recipients, err = archive.ParseRecipients(s.Recipients...); err != nil {
		return nil, err
	}
	if s.Identity != "" {
		if spec.Identity, err = archive.ParseIdentities(s.Identity); err != nil {
			return nil, err
		}
	}
	store, err := m.config.Open(ctx, s.Target)
	if err != nil {
		return nil, err
	}
	l := &openLog{store: store}
	l.writer, err = changelog.Open(ctx, spec, changelog.Config{Cluster: &cluster{Maker: m, backup: b},
		Target: store, Random: m.config.Random, Now: time.Now,
		Failed: func(node keys.NodeID, err error) {
			m.config.Logger.Info("a node is asked again for changes", "schedule", s.Name, "node", node,
				"error", err)
		}}, wire.FromClusterTimestamp(s.LogRound))
	if err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("the log %s: %w", s.Log, err)
	}
	return l, nil
}

// Round implements backups.Log.
func (l *openLog) Round(ctx context.Context) error {
	_, err := l.writer.Round(ctx)
	return err
}

// End implements backups.Log.
func (l *openLog) End() (at, round *clusterpb.Timestamp) {
	return ts(l.writer.State().At), ts(l.writer.State().Round)
}

// Close implements backups.Log.
func (l *openLog) Close() { _ = l.store.Close() }

// Broken implements backups.Maker.
func (m *Maker) Broken(err error) bool {
	return errors.Is(err, job.ErrTooOld) || errors.Is(err, manifest.ErrBroken) ||
		errors.Is(err, target.ErrNotFound)
}

// Expire implements backups.Maker.
func (m *Maker) Expire(ctx context.Context, s *clusterpb.BackupSchedule, keep time.Time) (
	removed int, err error) {
	store, err := m.config.Open(ctx, s.Target)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	e, err := catalog.New(store, nil).Expire(ctx, m.clusterID(), s.Name,
		hlc.Timestamp{Wall: keep.UnixNano()})
	if e.Objects > 0 {
		m.config.Logger.Info("old backups were removed", "schedule", s.Name, "backups", e.Backups,
			"rounds", e.Rounds, "objects", e.Objects)
	}
	return e.Objects, err
}

// Release implements backups.Maker.
func (m *Maker) Release(ctx context.Context, s *clusterpb.BackupSchedule) error {
	all, err := m.config.Core().ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	c := &cluster{Maker: m}
	for _, ks := range all.GetKeyspaces() {
		for _, id := range []string{job.ScheduleID(s.Name), s.Log} {
			if id == "" {
				continue
			}
			if err := c.Unprotect(ctx, ks.GetKeyspace().GetName(), id); err != nil {
				return err
			}
		}
	}
	return nil
}
