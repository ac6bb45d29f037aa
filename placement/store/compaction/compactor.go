package compaction

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// StepEvents is the approximate number of events that one command visits when the leader splits a
// compaction, so that no command stops the log for long.
const StepEvents = 4_000

// Store is the store to be compacted. It is called without locks.
type Store interface {
	// ReadState runs f on the newest state of the database.
	ReadState(f func(*tables.Reader) error) error
	Revision() uint64
	Compacted() uint64
	Alarms() []*storepb.Alarm
	// MayUse reports whether all members are known to know a format, and its gate is open.
	MayUse(format byte) bool
	Leadership() (execute.Leadership, <-chan struct{})
	DoOwn(ctx context.Context, c *storepb.Command) (*storepb.Result, error)
}

// Config configures a Compactor.
type Config struct {
	Store Store
	// History is how many revisions are kept, and HistoryFor how long a revision is kept after it
	// was the newest. A revision is compacted if either allows it. 0 means no such bound.
	History    uint64
	HistoryFor time.Duration
	// Now is a monotonic clock.
	Now    func() time.Time
	Logger *slog.Logger
}

// Compactor compacts on the leader, and removes data that compactions have left. Its methods may be
// called from any goroutine.
type Compactor struct {
	config  Config
	store   Store
	long    chan struct{} // wakes run
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		// compacting closes when all data that a compaction has left is removed; nil if nothing is
		// left.
		compacting chan struct{}
	}
}

// New returns a Compactor, which compacts from Start to Stop.
func New(config Config) *Compactor {
	c := &Compactor{config: config, store: config.Store, long: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start starts the Compactor's goroutine.
func (c *Compactor) Start() { c.running.Go(c.run) }

// Stop waits until the compactor has ended.
func (c *Compactor) Stop() {
	c.cancel()
	c.running.Wait()
}

// Look wakes the Compactor to look for work.
func (c *Compactor) Look() {
	select {
	case c.long <- struct{}{}:
	default:
	}
}

// run keeps the history at its length, on the leader. A compaction may take long, or wait for a
// quorum, so run has its own goroutine: other work of the leader, such as ending leases, must not
// wait.
func (c *Compactor) run() {
	var seen timeline
	var ticks <-chan time.Time
	if c.config.HistoryFor > 0 {
		ticker := time.NewTicker(max(c.config.HistoryFor/timelineParts, time.Second))
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.long:
		case <-ticks:
			seen.note(c)
		}
		to := c.compactTo(&seen)
		if l, _ := c.store.Leadership(); l.Serving {
			if err := c.compactHistory(to); err != nil {
				// A compaction with an error may have been applied nevertheless, so look again.
				c.rest(lookAgain)
			}
		}
	}
}

// lookAgain is the pause after a compaction that failed.
const lookAgain = time.Second

// rest waits for d, or until Stop.
func (c *Compactor) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
	case <-timer.C:
	}
}

// timelineParts is the number of parts into which Config.HistoryFor is divided. At the end of each
// part the revision is recorded, so the history is longer by at most one part.
const timelineParts = 16

// timeline records which revision this member had at which time. A lagging member's revision was
// older than the newest, so the timeline never makes a revision look older than it is. All members
// keep a timeline, so that a new leader has one.
type timeline struct{ marks []mark }

type mark struct {
	at       time.Time
	revision uint64
}

// note records the present revision and time.
func (t *timeline) note(c *Compactor) {
	t.marks = append(t.marks, mark{c.config.Now(), c.store.Revision()})
}

// before returns the newest revision known to be that old; 0 if there is none. It drops older
// marks.
func (t *timeline) before(at time.Time) (revision uint64) {
	n := 0
	for n < len(t.marks) && !t.marks[n].at.After(at) {
		revision = t.marks[n].revision
		n++
	}
	t.marks = t.marks[max(n-1, 0):]
	return revision
}

// compactTo returns the revision at which to compact; 0 if no compaction is due.
func (c *Compactor) compactTo(seen *timeline) (to uint64) {
	if c.historyLong() {
		to = c.store.Revision() - c.config.History
	}
	if c.config.HistoryFor > 0 {
		to = max(to, seen.before(c.config.Now().Add(-c.config.HistoryFor)))
	}
	if l, _ := c.store.Leadership(); !l.Serving || to <= c.store.Compacted() {
		return 0
	}
	return to
}

// compactHistory compacts up to a revision, in steps, and removes data that earlier compactions
// have left. After each step it rests for as long as the step took, so that clients have their
// turns. While an alarm forbids compactions it proposes none: the end of the alarm makes it look
// again.
func (c *Compactor) compactHistory(to uint64) error {
	for c.ctx.Err() == nil {
		whole := compact(&storepb.Compact{Revision: to})
		if command.Alarmed(c.store.Alarms(), whole) != storepb.Code_OK {
			return nil
		}
		began := time.Now()
		var err error
		switch {
		case c.Compacting() != nil:
			_, err = c.store.DoOwn(c.ctx, resumeCompaction(c.store.Compacted()))
		case c.store.Compacted() < to:
			var step *storepb.Compact
			if step, err = c.step(to); err == nil {
				_, err = c.store.DoOwn(c.ctx, compact(step))
			}
		default:
			return nil
		}
		if err != nil && !errors.Is(err, command.ErrCompacted) {
			if c.ctx.Err() == nil {
				c.config.Logger.Info("history was not compacted; the leader tries again later",
					"to", to, "error", err)
			}
			return err
		}
		c.rest(min(time.Since(began), longestRest))
	}
	return nil
}

// longestRest bounds the rest between two steps: a step that has waited for a quorum needs no rest.
const longestRest = 100 * time.Millisecond

// historyLong reports whether the number of revisions exceeds the bound by a tenth.
func (c *Compactor) historyLong() bool {
	return c.config.History > 0 &&
		c.store.Revision() > c.store.Compacted()+c.config.History+c.config.History/10
}

// step returns the next command of a compaction at a revision: as many revisions as have about
// StepEvents events, or a part of a revision with more events, if all members know CompactFormat.
func (c *Compactor) step(to uint64) (step *storepb.Compact, err error) {
	err = c.store.ReadState(func(r *tables.Reader) error {
		step = &storepb.Compact{Revision: to}
		first := r.Meta.Compacted + 1
		end, n := r.Event(to+1, 0), 0
		for ok := r.Seek(r.FirstEvent(r.Meta), end); ok; ok = r.Next(end) {
			revision, _, err := tables.DecodeEventKey(r.Iterator.Key())
			if err != nil {
				return err
			}
			if n++; n > StepEvents {
				step.Revision = max(revision-1, first)
				if revision <= first && c.store.MayUse(command.CompactFormat) {
					step.Events = StepEvents
				}
				return nil
			}
		}
		return r.Iterator.Error()
	})
	return step, err
}

func compact(m *storepb.Compact) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Compact{Compact: m}}
}

// resumeCompaction is a command that removes more of the data that the compaction at a revision has
// left.
func resumeCompaction(at uint64) *storepb.Command {
	return compact(&storepb.Compact{Revision: at, Events: StepEvents, Resume: true})
}

// Prepare does a long compaction in steps, so that no command stops the log for long, and returns
// the last step.
func (c *Compactor) Prepare(
	ctx context.Context, whole *storepb.Command, m *storepb.Compact,
) (*storepb.Command, error) {
	to := m.GetRevision()
	for !m.GetResume() && c.store.Compacted() < to && to <= c.store.Revision() {
		step, err := c.step(to)
		if err != nil {
			return nil, err
		}
		if step.Revision >= to {
			return &storepb.Command{Origin: whole.Origin, Request: whole.Request,
				Session: whole.Session, Sequence: whole.Sequence, Acknowledged: whole.Acknowledged,
				Auth: whole.Auth, Op: compact(step).Op}, nil
		}
		// Each step proves what the whole proves: the user may have lost the right meanwhile, and a
		// step does not come back.
		one := compact(step)
		one.Auth = whole.Auth
		if _, err := c.store.DoOwn(ctx, one); err != nil && !errors.Is(err,
			command.ErrCompacted) {
			return nil, err
		}
	}
	return whole, nil
}

// Applied records the progress of compactions from the metadata. The caller updates the size of the
// store before, because callers of AwaitCompaction then read the size.
func (c *Compactor) Applied(meta *storepb.MetaRecord) {
	c.Left(meta)
	if c.historyLong() || meta.CompactionRest != nil {
		c.Look()
	}
}

// Left records whether a compaction has left data to be removed.
func (c *Compactor) Left(meta *storepb.MetaRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch left := meta.CompactionRest != nil; {
	case left && c.mu.compacting == nil:
		c.mu.compacting = make(chan struct{})
	case !left && c.mu.compacting != nil:
		close(c.mu.compacting)
		c.mu.compacting = nil
	}
}

// Compacting returns a channel that closes when all data that a compaction has left is removed; nil
// if nothing is left.
func (c *Compactor) Compacting() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.compacting
}

// AwaitCompaction returns when this member has removed all that compactions have made unreadable,
// or with the error of ctx. A command that compacts many changes returns once they are unreadable;
// the leader then removes them in steps.
func (c *Compactor) AwaitCompaction(ctx context.Context) error {
	rest := c.Compacting()
	if rest == nil {
		return nil
	}
	select {
	case <-rest:
		return nil
	case <-c.ctx.Done():
		return command.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
