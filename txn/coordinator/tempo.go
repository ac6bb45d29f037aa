package coordinator

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// tempo is how fast a transaction lays its locks. A small one does it at once. A large one would keep the processors, the disks and the
// network from everybody else for seconds, so its requests are small, and one is on its way at a time. As long as the answers say that others use
// the nodes as well, a rest that is several times as long as it took to be answered comes before the next: even on a small machine, where each request
// keeps every processor busy for a moment, because there are three replicas of what is laid, others nearly always find one idle then.
type tempo struct {
	c *Coordinator
	// keys and bytes bound a request.
	keys, bytes int
	slow        bool
	// left and done are how many requests have not been answered yet, and have been, which took worked; since is when the last rest ended.
	left, done int
	worked     time.Duration
	since      time.Time
	// crowded is when a node has last said that others use it; zero: never.
	crowded time.Time
}

const (
	// restTimes is how many times as long as a request a rest is; longestRest bounds it.
	restTimes   = 6
	longestRest = 50 * time.Millisecond
	// crowdedFor is for how long what one node has said holds for all.
	crowdedFor = time.Second
)

// tempo is how fast mutations are to be laid.
func (c *Coordinator) tempo(all []mutation) *tempo {
	bytes := 0
	for _, m := range all {
		bytes += m.size()
	}
	if bytes > maxBytes || len(all) >= manyLocks {
		return &tempo{c: c, keys: fewKeys, bytes: fewBytes, slow: true}
	}
	return &tempo{c: c, keys: chunkKeys, bytes: chunkBytes}
}

// abreast is how many of the chunks are on their way at a time.
func (t *tempo) abreast(chunks []*chunk) int {
	if t.slow {
		return 1
	}
	largest := 0
	for _, c := range chunks {
		largest = max(largest, c.bytes)
	}
	return max(1, min(maxParallel, maxBytes/max(1, largest)))
}

// begin notes that so many requests are about to be sent.
func (t *tempo) begin(n int) { t.left, t.since = n, time.Now() }

// rest is called when a request was answered, before the next is sent, and takes a rest if one is due: of the time that ctx leaves, all together take half of
// what is not needed for requests, even if these take twice as long as so far. answer is nil if the request failed.
func (t *tempo) rest(ctx context.Context, answer *kvpb.PrepareResponse) {
	t.left--
	if !t.slow || t.left <= 0 {
		return
	}
	now := time.Now()
	if answer.GetCrowded() {
		t.crowded = now
	}
	took := now.Sub(t.since)
	t.since, t.done, t.worked = now, t.done+1, t.worked+took
	if now.Sub(t.crowded) >= crowdedFor {
		return
	}
	d := min(restTimes*took, longestRest)
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, deadline.Sub(now)/time.Duration(2*t.left)-t.worked/time.Duration(t.done))
	}
	if d > 0 {
		_ = t.c.pause(ctx, d) // if ctx has ended, the requests find out
	}
	t.since = time.Now()
	t.c.metrics.rested.Add(t.since.Sub(now).Seconds())
}
