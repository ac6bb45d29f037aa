package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// Resolved names the backup and the log from which a moment is restored.
type Resolved struct {
	// Backup is the newest backup at or before the moment. Log is the log with the changes from the
	// backup's moment on. Log is empty if the moment is that of the backup.
	Backup, Log string
	At          hlc.Timestamp
}

// Newest stands for the latest moment that can be restored.
var Newest = hlc.Timestamp{Wall: 1<<63 - 1}

// NoKeyspaces is the last argument of Resolve for a restore of the coordination store alone.
func NoKeyspaces(string) bool { return false }

// ErrNoPoint: the target has no backup and log from which the moment can be restored.
var ErrNoPoint = errors.New("the moment cannot be restored")

// newestSlack is how much earlier than the newest moment a moment with more keyspaces may be, so
// that Resolve chooses it for Newest. The ends of two logs differ by their intervals.
const newestSlack = 10 * time.Minute

// Resolve finds the backup and the log for a restore to a moment, or to Newest. Several logs and
// backups may have the moment, and some of them may lack keyspaces. Resolve prefers one that has all
// keyspaces. wants reports whether the restore needs a keyspace; nil stands for all keyspaces. If
// the newest moment lacks keyspaces that a much earlier moment has, Resolve does not choose between
// the two, and returns ErrNoPoint.
//
// Encrypted logs need an identity. A log whose end cannot be read because of a missing identity or
// of damage is passed over, unless that log or a damaged backup may be the newest one.
func (c *Catalog) Resolve(ctx context.Context, at hlc.Timestamp,
	wants func(keyspace string) bool) (Resolved, error) {
	contents, err := c.List(ctx)
	if err != nil {
		return Resolved{}, err
	}
	logs, damaged, err := c.Logs(ctx)
	if err != nil {
		return Resolved{}, err
	}
	var passed []unread
	for id, err := range contents.Damaged {
		passed = append(passed, unread{reaches: hlc.FromTime(manifest.BeganOf(id)), err: err})
	}
	for id, err := range damaged {
		var l Log
		if err := c.extent(ctx, &l, id); err != nil {
			return Resolved{}, err
		}
		passed = append(passed, unread{reaches: l.Through, err: err})
	}
	var all []*candidate
	for i := range logs {
		found, err := c.ofLog(ctx, &logs[i], contents.Complete, at)
		if unreadable(err) {
			passed = append(passed, unread{logs[i].partial(contents.Complete, Newest), logs[i].Through,
				fmt.Errorf("the end of the log %s: %w", logs[i].ID, err)})
			continue
		}
		if err != nil {
			return Resolved{}, err
		}
		if found != nil {
			all = append(all, found)
		}
	}
	for _, head := range mayResolve(contents.Complete, at) {
		all = append(all, &candidate{Resolved: Resolved{Backup: head.ID, At: head.At.Timestamp},
			origin: origin{head.Cluster, head.Schedule, head.Partial}})
	}
	if len(all) > 0 {
		all = latest(all)
		if all, err = c.rank(ctx, all, wants, &passed); err != nil {
			return Resolved{}, err
		}
	}
	if len(all) == 0 {
		err := c.noPoint(at, contents, logs)
		for _, u := range passed {
			err = fmt.Errorf("%w. Something was passed over: %w", err, u.err)
		}
		return Resolved{}, err
	}
	newest := slices.MaxFunc(all, func(a, b *candidate) int { return a.At.Compare(b.At) })
	best := slices.MaxFunc(all, func(a, b *candidate) int {
		return cmp.Or(a.fuller(b), a.At.Compare(b.At), cmp.Compare(a.count, b.count))
	})
	if best.At.Time().Add(newestSlack).Before(newest.At.Time()) {
		return Resolved{}, fmt.Errorf("%w: which moment is meant? The newest moment in %s is %s, without "+
			"some keyspaces. The newest moment with more keyspaces is %s. Name the keyspaces, or the moment",
			ErrNoPoint, c.target, moment(newest.At), moment(best.At))
	}
	for _, u := range passed {
		end := best.At
		if u.partial && best.whole {
			end = end.Add(newestSlack)
		}
		if at == Newest && end.Less(u.reaches) {
			return Resolved{}, fmt.Errorf("%w: which moment is the newest? There is a later one than %s, which "+
				"cannot be read: %w. Name the moment", ErrNoPoint, moment(best.At), u.err)
		}
	}
	return best.Resolved, nil
}

// unread is a backup or a log that cannot be read. Its last moment is not before reaches.
type unread struct {
	partial bool
	reaches hlc.Timestamp
	err     error
}

// unreadable reports whether an error is about one object alone, and not about the target.
func unreadable(err error) bool {
	return errors.Is(err, archive.ErrNoIdentity) || errors.Is(err, archive.ErrCorrupt) ||
		errors.Is(err, target.ErrNotFound)
}

// candidate is a backup, or a log with a backup, from which a moment can be restored.
type candidate struct {
	Resolved
	origin
	// whole is set if all keyspaces that the restore needs are there. Otherwise count is the number
	// of keyspaces that are there.
	whole bool
	count int
	// round is the last round that the candidate needs, or nil if it was not read.
	round *manifest.Round
}

// origin says for what a backup or log was written. partial is set if keyspaces were left out.
type origin struct {
	cluster, schedule string
	partial           bool
}

// fuller compares the keyspaces of two candidates. It returns 1 if a has more.
func (a *candidate) fuller(b *candidate) int {
	switch {
	case a.whole && b.whole:
		return 0
	case a.whole:
		return 1
	case b.whole:
		return -1
	}
	return cmp.Compare(a.count, b.count)
}

// ofLog returns the candidate of a log for a moment or for Newest, or nil if there is none.
func (c *Catalog) ofLog(ctx context.Context, l *Log, heads manifest.Heads,
	at hlc.Timestamp) (*candidate, error) {
	if l.Rounds == 0 {
		return nil, nil
	}
	end, err := c.Round(ctx, l.ID, l.Through)
	if err != nil {
		return nil, err
	}
	if end.At.Less(at) && at != Newest {
		return nil, nil
	}
	found := &candidate{origin: origin{l.Cluster, l.Schedule, l.partial(heads, end.At.Timestamp)}}
	if at == Newest {
		at, found.round = end.At.Timestamp, end
	}
	base := l.base(heads.Whole(), at)
	if base == nil {
		return nil, nil
	}
	found.Resolved = Resolved{Backup: base.ID, Log: l.ID, At: at}
	if base.At.Timestamp == at {
		found.Log, found.partial = "", base.Partial
	}
	return found, nil
}

// partial reports whether keyspaces were left out of the log on request. Heads of logs that were
// written by version 0.1 do not say it; then a backup of the schedule says it.
func (l *Log) partial(heads manifest.Heads, end hlc.Timestamp) bool {
	if l.Partial {
		return true
	}
	for _, head := range heads {
		if head.Partial && head.Cluster == l.Cluster && head.Schedule == l.Schedule &&
			l.From.LessEq(head.At.Timestamp) && head.At.LessEq(end) {
			return true
		}
	}
	return false
}

// mayResolve returns the backups from which alone a moment may be restored. For Newest it leaves out
// those after which the cluster made a backup of all keyspaces, or of the same keyspaces.
func mayResolve(heads manifest.Heads, at hlc.Timestamp) (all []*manifest.Head) {
	full, seen := make(map[string]bool), make(map[string]bool)
	for _, head := range slices.Backward(heads.Sorted()) {
		if at != Newest {
			if head.At.Timestamp == at {
				all = append(all, head)
			}
			continue
		}
		same := fmt.Sprint(head.Cluster, head.Partial, head.Keyspaces)
		if !full[head.Cluster] && !seen[same] {
			all = append(all, head)
		}
		seen[same] = true
		full[head.Cluster] = full[head.Cluster] || !head.Partial
	}
	return all
}

// latest removes the candidates that do not compete with the newest one: those of other clusters,
// and of each schedule the earlier ones, because keyspaces may have been dropped since then.
func latest(all []*candidate) []*candidate {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *candidate) int { return b.At.Compare(a.At) })
	seen := make(map[origin]hlc.Timestamp)
	return slices.DeleteFunc(all, func(one *candidate) bool {
		at, later := seen[one.origin]
		if !later {
			seen[one.origin] = one.At
		}
		return one.At != all[0].At && (one.cluster != all[0].cluster ||
			later && one.schedule != "" && one.At.Less(at))
	})
}

// rank sets whole and count of candidates. It moves those that cannot be read to passed, and returns
// the others.
func (c *Catalog) rank(ctx context.Context, all []*candidate, wants func(string) bool,
	passed *[]unread) ([]*candidate, error) {
	partial, same := false, true
	for _, one := range all {
		one.whole = !one.partial
		partial, same = partial || one.partial, same && one.Resolved == all[0].Resolved
	}
	if same || !partial && all[0].At != all[len(all)-1].At {
		return all, nil
	}
	var full *candidate // the newest one of which no keyspace was left out
	there := make(map[*candidate]map[string]bool)
	var rest []*candidate
	for _, one := range all {
		names, err := c.keyspaces(ctx, one)
		if unreadable(err) {
			*passed = append(*passed, unread{one.partial, one.At, err})
			continue
		}
		if err != nil {
			return nil, err
		}
		rest = append(rest, one)
		if one.whole && (full == nil || full.At.Less(one.At)) {
			full = one
		}
		there[one] = make(map[string]bool)
		for _, name := range names {
			if wants == nil || wants(name) {
				there[one][name] = true
			}
		}
		one.count = len(there[one])
	}
	if wants == nil || full == nil {
		return rest, nil
	}
	for _, one := range rest {
		if !one.partial {
			one.whole = one.count > 0
		}
	}
	for _, one := range rest {
		if !one.partial {
			continue
		}
		one.whole = full.whole
		for name := range there[full] {
			one.whole = one.whole && there[one][name]
		}
	}
	return rest, nil
}

// keyspaces returns the names of the keyspaces of a candidate.
func (c *Catalog) keyspaces(ctx context.Context, one *candidate) (names []string, err error) {
	var all []manifest.Keyspace
	switch {
	case one.Log == "":
		m, err := c.Manifest(ctx, one.Backup)
		if err != nil {
			return nil, err
		}
		all = m.Keyspaces
	case one.round != nil:
		all = one.round.Keyspaces
	default:
		rounds, err := c.rounds(ctx, one.Log, one.At.Prev(), one.At)
		if err != nil {
			return nil, err
		}
		all = rounds[len(rounds)-1].Keyspaces
	}
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, nil
}

// moment formats a moment for an error.
func moment(at hlc.Timestamp) string { return at.Time().Format(time.RFC3339) }

// noPoint returns an error which says that a moment cannot be restored, and which moments can.
func (c *Catalog) noPoint(at hlc.Timestamp, contents *Contents, logs []Log) error {
	var there []string
	for i := range logs {
		if span, ok := logs[i].Restorable(contents.Complete); ok {
			there = append(there, moment(span.From)+" to "+moment(span.Through))
		}
	}
	switch {
	case at == Newest:
		return fmt.Errorf("%w: there is no complete backup in %s", ErrNoPoint, c.target)
	case len(there) == 0:
		return fmt.Errorf("%w: no log in %s has %s; `tidemark backup list` shows the moments of backups",
			ErrNoPoint, c.target, moment(at))
	}
	return fmt.Errorf("%w: %s has not %s. With its logs it has every moment from %s", ErrNoPoint,
		c.target, moment(at), strings.Join(there, ", and from "))
}
