package committer

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// tempo is how fast a transaction lays its locks. A small one does it at once. A large one would keep the processors, the disks and the
// network from everybody else for seconds, so its requests are small, and few are on their way at a time. As long as the answers say that others use
// the nodes as well, it is one, and a rest that is several times as long as it took to be answered comes before the next: even on a small machine, where
// each request keeps every processor busy for a moment, because there are three replicas of what is laid, others nearly always find one idle then. But
// as soon as somebody waits for one of its locks, or it might miss its deadline, it makes haste.
type tempo struct {
	t *Transaction
	// keys and bytes bound a request.
	keys, bytes int
	slow        bool
	// left is how many requests have not been answered yet, done how many have been that were on their way alone, which took worked; since is when the
	// last rest ended, or the last answer came.
	left, done int
	worked     time.Duration
	since      time.Time
	// alone: one request is on its way at a time. There are no rests otherwise: how long a request takes could not be told.
	alone bool
	// reserve is how much of the time that there is is not for rests, if there is a deadline.
	reserve time.Duration
	// crowded is when a node has last said that others use it; zero: never. still: it was the last that has answered, however long ago.
	crowded time.Time
	still   bool
	// hasty: the last round was late, so how long a request takes by itself is to be measured again.
	hasty bool
}

const (
	// restTimes is how many times as long as a request a rest is; longestRest bounds it.
	restTimes   = 6
	longestRest = 50 * time.Millisecond
	// crowdedFor is for how long what one node has said holds for all.
	crowdedFor = time.Second
	// round is after how many requests of a large transaction is decided anew how many are on their way at a time: one if there are rests,
	// hasteParallel if not, or if it is late.
	round         = 32
	hasteParallel = 8
	// measures is how many requests are sent one by one before anything is decided.
	measures = 2
	// outlier is how many times as long as the average so far a request counts for at most, and the first as the second.
	outlier = 4
)

// tempo is how fast mutations are to be laid.
func (t *Transaction) tempo(ctx context.Context, all []mutation) *tempo {
	bytes := 0
	for _, m := range all {
		bytes += m.size()
	}
	if bytes <= maxBytes && len(all) < manyLocks {
		return &tempo{t: t, keys: chunkKeys, bytes: chunkBytes}
	}
	p := &tempo{t: t, keys: fewKeys, bytes: fewBytes, slow: true}
	if deadline, ok := ctx.Deadline(); ok {
		p.reserve = time.Until(deadline) / 2
	}
	return p
}

// next is how many of the chunks are to be sent now, and how many of them are on their way at a time.
func (p *tempo) next(ctx context.Context, chunks []*chunk) (count, abreast int) {
	count = len(chunks)
	if p.slow {
		count = min(count, round)
	}
	largest := 1
	for _, c := range chunks[:count] {
		largest = max(largest, c.bytes)
	}
	switch {
	case !p.slow:
		abreast = maxParallel
	case p.done < measures || p.hasty:
		count, abreast, p.hasty = 1, 1, false // the answer says whether others are there, and how long it takes
	case !p.rests(time.Now()):
		abreast = hasteParallel
	case p.late(ctx):
		abreast, p.hasty = hasteParallel, true
	default:
		abreast = 1
	}
	p.alone = abreast == 1
	return count, max(1, min(abreast, maxBytes/largest))
}

// begin notes that so many requests are about to be sent.
func (p *tempo) begin(n int) { p.left, p.since = n, time.Now() }

// late says that the requests that are left would take most of the time that is left, one after the other.
func (p *tempo) late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && p.done > 0 && p.worked/time.Duration(p.done)*time.Duration(p.left) > time.Until(deadline)/2
}

// rests says that there are rests.
func (p *tempo) rests(now time.Time) bool {
	return (p.still || now.Sub(p.crowded) < crowdedFor) && !p.t.isWanted()
}

// rest is called when a request was answered, before the next is sent, and takes a rest if one is due. With a deadline, half of the time is reserved for
// what is no rest, and so is what all requests that are left would take, if they went on as so far. answer is nil if the request failed.
func (p *tempo) rest(ctx context.Context, answer *kvpb.PrepareResponse) {
	p.left--
	if !p.slow || p.left <= 0 {
		return
	}
	now := time.Now()
	if p.still = answer.GetCrowded(); p.still {
		p.crowded = now
	}
	if answer.GetWanted() {
		p.t.want()
	}
	took := now.Sub(p.since)
	p.since = now
	if !p.alone {
		return
	}
	// One that waited, for a lock or for a leader, says little about the others.
	counts := took
	switch p.done {
	case 0:
	case 1:
		p.worked = min(p.worked, outlier*took)
		fallthrough
	default:
		counts = min(counts, outlier*p.worked/time.Duration(p.done))
	}
	p.done, p.worked = p.done+1, p.worked+counts
	if !p.rests(now) {
		return
	}
	d := min(restTimes*took, longestRest)
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, (deadline.Sub(now)-p.reserve)/time.Duration(p.left)-p.worked/time.Duration(p.done))
	}
	if d > 0 {
		_ = p.t.c.pause(ctx, d) // if ctx has ended, the requests find out
	}
	p.since = time.Now()
	p.t.c.metrics.rested.Add(p.since.Sub(now).Seconds())
}

// want notes that somebody waits for the transaction's locks for whom it is not to rest.
func (t *Transaction) want() {
	t.mu.Lock()
	t.mu.wanted = true
	t.mu.Unlock()
}

func (t *Transaction) isWanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.wanted
}
