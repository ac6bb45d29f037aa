package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// Log describes a log in a target.
type Log struct {
	*manifest.LogHead
	// Through is a moment up to which the log certainly has all changes: the After of its last round.
	// The log really reaches the At of that round, which is later by the interval of the log. In an
	// encrypted log, only the holder of an identity can read that At.
	Through hlc.Timestamp
	// First is the After of the oldest round that still exists. It is zero if there is no round.
	First  hlc.Timestamp
	Rounds int
}

// Logs lists the logs, in the order of their ids. damaged has, by their ids, the logs whose heads
// are damaged, and the errors.
func (c *Catalog) Logs(ctx context.Context) (all []Log, damaged map[string]error, err error) {
	damaged = make(map[string]error)
	for object, err := range c.target.List(ctx, manifest.LogHeadsPrefix) {
		if err != nil {
			return nil, nil, err
		}
		id, ok := manifest.LogOfHead(object.Name)
		if !ok {
			continue
		}
		head, err := c.LogHead(ctx, id)
		if errors.Is(err, target.ErrNotFound) {
			continue // it has just been deleted
		}
		if errors.Is(err, archive.ErrCorrupt) {
			damaged[id] = err
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		all = append(all, Log{LogHead: head})
	}
	for i := range all {
		if err := c.extent(ctx, &all[i], all[i].ID); err != nil {
			return nil, nil, err
		}
	}
	return all, damaged, nil
}

// extent sets First, Through and Rounds of a log.
func (c *Catalog) extent(ctx context.Context, l *Log, id string) error {
	for object, err := range c.target.List(ctx, manifest.RoundsPrefix(id)) {
		if err != nil {
			return err
		}
		after, ok := manifest.RoundOf(id, object.Name)
		if !ok {
			continue
		}
		if l.Rounds == 0 {
			l.First = after
		}
		l.Rounds, l.Through = l.Rounds+1, after
	}
	return nil
}

// LogHead reads the head of a log.
func (c *Catalog) LogHead(ctx context.Context, id string) (*manifest.LogHead, error) {
	name := manifest.LogHeadName(id)
	data, err := c.unseal(ctx, name, manifest.LogHeadKind)
	if err != nil {
		return nil, err
	}
	head, err := manifest.DecodeLogHead(data)
	if err == nil && head.ID != id {
		err = fmt.Errorf("%w: it is the head of the log %s", archive.ErrCorrupt, head.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return head, nil
}

// Round reads the round of a log whose After is a given moment. It returns target.ErrNotFound if
// there is no such round.
func (c *Catalog) Round(ctx context.Context, id string, after hlc.Timestamp) (*manifest.Round,
	error) {
	name := manifest.RoundName(id, after)
	data, err := c.unseal(ctx, name, manifest.RoundKind)
	if err != nil {
		return nil, err
	}
	r, err := manifest.DecodeRound(data)
	if err == nil && (r.Log != id || r.After.Timestamp != after) {
		err = fmt.Errorf("it is the round after %v of the log %s", r.After, r.Log)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// rounds reads the rounds of a log from the round that contains `from` to the round that contains
// `to`.
func (c *Catalog) rounds(ctx context.Context, id string, from, to hlc.Timestamp) ([]*manifest.Round,
	error) {
	begins, err := c.before(ctx, id, from)
	if err != nil {
		return nil, err
	}
	var rounds []*manifest.Round
	for at := begins; at.Less(to); {
		r, err := c.Round(ctx, id, at)
		if errors.Is(err, target.ErrNotFound) {
			return nil, fmt.Errorf("%w: the log %s has no round after %v", errUncovered, id, at)
		}
		if err != nil {
			return nil, err
		}
		if n := len(rounds); n > 0 {
			if err := r.Follows(rounds[n-1]); err != nil {
				return nil, err
			}
		}
		rounds = append(rounds, r)
		at = r.At.Timestamp
	}
	return rounds, nil
}

// errUncovered: a log does not contain a moment.
var errUncovered = errors.New("the moment is not in the log")

// before returns the After of the last round that begins at or before a moment.
func (c *Catalog) before(ctx context.Context, id string, at hlc.Timestamp) (found hlc.Timestamp,
	err error) {
	head, err := c.LogHead(ctx, id)
	if err != nil {
		return found, err
	}
	// The search goes back day by day. A round is longer than a day if the target or the cluster was
	// unavailable for longer than a day.
	for day := at.Time(); found.IsZero(); day = day.Add(-24 * time.Hour) {
		for object, err := range c.target.List(ctx, manifest.RoundsOfDay(id, day)) {
			if err != nil {
				return found, err
			}
			after, ok := manifest.RoundOf(id, object.Name)
			if ok && after.LessEq(at) {
				found = after
			}
		}
		if found.IsZero() && day.Before(head.From.Time().Add(-24*time.Hour)) {
			return found, fmt.Errorf("%w: the log %s begins at %v", errUncovered, id, head.From)
		}
	}
	return found, nil
}

// Point reads the descriptions that a restore needs. Without a log the moment is the moment of the
// backup. With a log it is any moment that the log contains.
func (c *Catalog) Point(ctx context.Context, backup, log string, at hlc.Timestamp) (*manifest.Point,
	error) {
	layers, err := c.Layers(ctx, backup)
	if err != nil {
		return nil, err
	}
	if log == "" {
		return manifest.NewPoint(layers, nil, hlc.Timestamp{})
	}
	rounds, err := c.rounds(ctx, log, layers[len(layers)-1].Head.At.Timestamp, at)
	if err != nil {
		return nil, err
	}
	return manifest.NewPoint(layers, rounds, at)
}

// base returns the newest backup at or before a moment from which the log has all later changes. It
// returns nil if there is none.
func (l *Log) base(heads manifest.Heads, at hlc.Timestamp) (found *manifest.Head) {
	for _, head := range heads.Sorted() {
		if head.Cluster == l.Cluster && l.First.LessEq(head.At.Timestamp) && head.At.LessEq(at) &&
			(!head.Partial || head.Schedule == l.Schedule) {
			found = head
		}
	}
	return found
}

// Restorable is a period. Every moment in it can be restored from a log and the backups.
type Restorable struct{ From, Through hlc.Timestamp }

// Restorable returns the moments that can be restored from the log and the backups. It returns
// false if there are none.
func (l *Log) Restorable(heads manifest.Heads) (Restorable, bool) {
	for _, head := range heads.Whole().Sorted() {
		if l.Rounds > 0 && l.base(manifest.Heads{head.ID: head}, l.Through) != nil {
			return Restorable{From: head.At.Timestamp, Through: l.Through}, true
		}
	}
	return Restorable{}, false
}

// DeleteLog removes all objects of a log. It may be repeated. It returns the number of removed
// objects.
func (c *Catalog) DeleteLog(ctx context.Context, id string) (removed int, err error) {
	if bad := manifest.CheckID(id); bad != "" {
		return 0, errors.New(bad)
	}
	// The descriptions go first, so that nobody reads pieces that are being removed. The head goes
	// last: until then the log is in the list.
	for _, prefix := range []string{manifest.RoundsPrefix(id), manifest.LogDataPrefix(id),
		manifest.LogHeadName(id)} {
		n, err := c.remove(ctx, prefix, func(string) bool { return true })
		removed += n
		if err != nil {
			return removed, err
		}
		n, err = c.target.Sweep(ctx, prefix, time.Now())
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// remove removes the objects below a prefix, in the order of their names. It stops at the first
// object for which the caller's function returns false.
func (c *Catalog) remove(ctx context.Context, prefix string,
	removes func(name string) bool) (removed int, err error) {
	for object, err := range c.target.List(ctx, prefix) {
		if err != nil {
			return removed, err
		}
		if !removes(object.Name) {
			break
		}
		if err := c.target.Delete(ctx, object.Name); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// logPiece reads a piece of a log and compares it with its description in the round.
func (c *Catalog) logPiece(ctx context.Context, r *manifest.Round,
	p *manifest.Piece) (*archive.Reader, error) {
	reader := new(archive.Reader)
	if err := c.object(ctx, p, reader); err != nil {
		return nil, err
	}
	if h := reader.Header(); h.Backup != r.Log || h.Kind != manifest.LogKind ||
		uint64(reader.Count()) != p.Records || r.At.Less(h.At) ||
		!h.After.IsZero() && h.After != r.After.Timestamp {
		return nil, fmt.Errorf("%s: %w: it is a piece of the log %s from %v to %v with %d records", p.Name,
			archive.ErrCorrupt, h.Backup, h.After, h.At, reader.Count())
	}
	return reader, nil
}
