package replica

import (
	"time"
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// heldMost is how many answers a partition holds back at most; more are told that their outcome is
// unknown.
const heldMost = 16 << 10

// SetCommitWait sets whether every write has commit wait, also one that does not ask for it.
func (r *Replica) SetCommitWait(wait bool) { r.commitWait.Store(wait) }

// SetDefaultTTL sets how long a value lives whose write does not say so; 0: it does not expire.
func (r *Replica) SetDefaultTTL(ttl time.Duration) { r.defaultTTL.Store(int64(ttl)) }

func (r *Replica) passed(ts hlc.Timestamp) bool { return r.node.Waits.Passed(ts) }

// heldAnswer is an answer that waits for the clocks: a commitwait.Held.
type heldAnswer struct {
	answer
	r *Replica
}

func (h *heldAnswer) Release() { h.r.reply(h.pending, h.command, h.response) }

func (h *heldAnswer) Refuse() {
	h.r.reply(h.pending, h.command, h.r.refuse.UnknownOutcome(h.pending.Request))
}

// send answers a request, now or when every clock has passed what the answer waits for.
func (r *Replica) send(a *answer) {
	if a.hold.IsZero() || r.passed(a.hold) {
		r.reply(a.pending, a.command, a.response)
		return
	}
	if h := (&heldAnswer{*a, r}); !r.heldAnswers.Hold(a.hold, h) {
		h.Refuse()
	}
}

// heldRead is a read that waits for the clocks: a commitwait.Held. It counts as a waiting read.
type heldRead struct {
	rd *read
	r  *Replica
}

// Release reads again. What is at or below the read's timestamp is as it was, whichever node leads
// by now.
func (h heldRead) Release() {
	h.r.waitsNoMore(1)
	h.r.serve(h.rd)
}

func (h heldRead) Refuse() {
	h.r.waitsNoMore(1)
	h.r.refuseRead(h.rd)
}

// waitsNoMore counts reads that do not wait any longer.
func (r *Replica) waitsNoMore(reads int) {
	r.mu.Lock()
	r.mu.reads.waiting -= reads
	r.mu.Unlock()
}

// holdRead puts a read aside that has seen what is not to be seen yet, if it has.
func (r *Replica) holdRead(rd *read) bool {
	if rd.seen.IsZero() || r.passed(rd.seen) {
		return false
	}
	r.mu.Lock()
	full := r.tooManyReadsLocked()
	if !full {
		r.mu.reads.waiting++
	}
	r.mu.Unlock()
	switch q := rd.pending.Request; {
	case full:
		r.endRead(rd, r.refuse.Overloaded(q, "reads wait for commits that are not to be seen yet"))
	case r.heldReads.Hold(rd.seen, heldRead{rd, r}):
		r.node.Metrics.Reads.Held.Inc()
	default:
		r.waitsNoMore(1)
		r.endRead(rd, r.refuse.Closed(q))
	}
	return true
}

// reply answers a request, now.
func (r *Replica) reply(p config.Pending, c *command.Command, response *kvpb.Response) {
	if response.Now == nil {
		r.node.Tell(response, hlc.Timestamp{})
	}
	r.node.Metrics.Answered(c, response)
	p.Reply(response)
}

// text is a string of the same memory as b, which must not be changed as long as the string lives.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
