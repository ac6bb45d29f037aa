package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
)

// Expired says what Expire has removed.
type Expired struct {
	// Backups are the ids of the removed backups. Rounds is the number of removed rounds of logs.
	// Objects is the number of all removed objects.
	Backups []string
	Rounds  int
	Objects int
}

// Expire removes the backups and rounds of a schedule that no restore to `keep` or a later moment
// needs. The base is the newest backup of the schedule at or before keep. Expire removes the
// earlier backups of the schedule, unless a backup that stays continues them, and the rounds of
// logs that end before the base. If a backup that stays continues a damaged one, nobody knows which
// backups the damaged one continues, and Expire removes no backup. It may be repeated.
func (c *Catalog) Expire(ctx context.Context, cluster, schedule string,
	keep hlc.Timestamp) (e Expired, err error) {
	contents, err := c.List(ctx)
	if err != nil {
		return e, err
	}
	heads := contents.Complete.Sorted()
	own := func(h *manifest.Head) bool { return h.Cluster == cluster && h.Schedule == schedule }
	var base *manifest.Head
	// The base has to be restorable: what is before it is removed.
	for _, head := range contents.Complete.Whole().Sorted() {
		if own(head) && head.At.LessEq(keep) {
			base = head
		}
	}
	if base == nil {
		return e, nil
	}
	stays := make(manifest.Heads)
	for _, head := range heads {
		if !own(head) || !head.At.Less(base.At.Timestamp) {
			stays[head.ID] = head
		}
	}
	needed := contents.Complete.NeededBy(stays)
	known := true // what the backup that is needed continues
	for id := range needed {
		known = known && contents.Complete[id] != nil
	}
	for _, head := range slices.Backward(heads) { // each backup before the backups that it continues
		if !known || stays[head.ID] != nil || needed[head.ID] {
			continue
		}
		n, err := c.Delete(ctx, head.ID)
		e.Objects += n
		if errors.Is(err, ErrNeeded) {
			continue // another backup continues it since the list was made
		}
		if err != nil {
			return e, err
		}
		e.Backups = append(e.Backups, head.ID)
	}
	logs, _, err := c.Logs(ctx)
	if err != nil {
		return e, err
	}
	for i := range logs {
		l := &logs[i]
		if l.Cluster != cluster || l.Schedule != schedule {
			continue
		}
		if err := c.expireLog(ctx, l, base.At.Timestamp, &e); err != nil {
			return e, fmt.Errorf("log %s: %w", l.ID, err)
		}
	}
	return e, nil
}

// expireLog removes the rounds of a log before the round that contains base: the last round that
// begins at or before base stays, with all later rounds.
func (c *Catalog) expireLog(ctx context.Context, l *Log, base hlc.Timestamp, e *Expired) error {
	if l.Rounds == 0 || !l.First.Less(base) {
		return nil
	}
	stays := l.First
	for object, err := range c.target.List(ctx, manifest.RoundsPrefix(l.ID)) {
		if err != nil {
			return err
		}
		after, ok := manifest.RoundOf(l.ID, object.Name)
		if base.Less(after) {
			break
		}
		if ok {
			stays = after
		}
	}
	// The descriptions go first: from then on nobody reads the pieces.
	for _, prefix := range []string{manifest.RoundsPrefix(l.ID), manifest.LogDataPrefix(l.ID)} {
		n, err := c.remove(ctx, prefix, func(name string) bool {
			after, ok := manifest.RoundOf(l.ID, name)
			return !ok || after.Less(stays)
		})
		e.Objects += n
		if prefix == manifest.RoundsPrefix(l.ID) {
			e.Rounds += n
		}
		if err != nil {
			return err
		}
		if _, err := c.target.Sweep(ctx, prefix, time.Now().Add(-sweepAfter)); err != nil {
			return err
		}
	}
	return nil
}

// sweepAfter is the age that leftovers of a writer must have before they are removed. Younger ones
// may belong to a writer that is still running.
const sweepAfter = 24 * time.Hour
