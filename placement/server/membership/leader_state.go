package membership

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Group is what changing the core's members needs of its Raft group; host.Group has it.
type Group interface {
	// Applied is the last applied index.
	Applied() uint64
	// Followers reports the followers' progress, at once or later; nil if this member does not lead.
	Followers(report func(map[keys.ReplicaID]group.Progress))
	// TransferLeader hands the leadership of a term to a member, if the term is the present one.
	TransferLeader(term uint64, to keys.ReplicaID)
}

const (
	// candidateAge is how long a server counts as a candidate after its last announcement.
	candidateAge = 10 * time.Second
	// maxCandidates bounds those that are remembered.
	maxCandidates = 64
	// nearlyAll is how many entries a member may lack that is made a voter, or takes the
	// leadership: it gets them within a moment.
	nearlyAll = 64
)

// coreChanges is the leader's volatile state of changes of the core's members.
type coreChanges struct {
	// poked wakes the stepper. Capacity 1.
	poked chan struct{}

	mu struct {
		sync.Mutex
		candidates map[uint64]candidate
		// step is the last step, or what it waits for, as the leader of a term; and since when it
		// is that.
		step     coreStep
		stepTerm uint64
		since    time.Time
	}
	// fenced is the term, and the version of the members, after which an entry is known to be
	// committed. Only the stepper uses it.
	fenced [2]uint64
	// informed is when silent nodes were last told of the members, and next the node to continue
	// with. Only the stepper uses them.
	informed time.Time
	next     int
	// said is what was last logged of a change. Only the stepper uses it.
	said string
}

type candidate struct {
	address, version string
	at               time.Time
}

func (c *coreChanges) init() {
	c.poked = make(chan struct{}, 1)
	c.mu.candidates = map[uint64]candidate{}
}

func (c *coreChanges) poke() {
	select {
	case c.poked <- struct{}{}:
	default:
	}
}

// offer notes a server that offers itself.
func (c *coreChanges) offer(r *clusterpb.AnnounceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked()
	if _, ok := c.mu.candidates[r.Server]; ok || len(c.mu.candidates) < maxCandidates {
		c.mu.candidates[r.Server] = candidate{r.Address, r.Version, time.Now()}
	}
}

func (c *coreChanges) expireLocked() {
	for id, x := range c.mu.candidates {
		if time.Since(x.at) > candidateAge {
			delete(c.mu.candidates, id)
		}
	}
}

// offering lists the servers that offer themselves, without those that are, or were, members.
func (c *coreChanges) offering(member func(server uint64) bool) []*clusterpb.CoreCandidate {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked()
	var list []*clusterpb.CoreCandidate
	for id, x := range c.mu.candidates {
		if !member(id) {
			list = append(list, &clusterpb.CoreCandidate{Server: id, Address: x.address,
				Version: x.version})
		}
	}
	slices.SortFunc(list, func(a, b *clusterpb.CoreCandidate) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Server, b.Server))
	})
	return list
}

func (c *coreChanges) setStep(term uint64, s coreStep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.mu.step
	if before.text != s.text || before.waits != s.waits || c.mu.stepTerm != term {
		c.mu.since = time.Now()
	}
	c.mu.step, c.mu.stepTerm = s, term
}

// stepAge returns how long the last step has been the same; 0 if there was none.
func (c *coreChanges) stepAge() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.since.IsZero() {
		return 0
	}
	return time.Since(c.mu.since)
}

func (c *coreChanges) lastStep() coreStep {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.step
}

// progress asks the group for the progress of the other members; nil if this one does not lead.
func (s *Membership) progress(ctx context.Context) map[keys.ReplicaID]group.Progress {
	if s.config.Group == nil {
		return nil
	}
	return s.progressOf(ctx, s.config.Group)
}

// progressOf is progress for either of the groups of the core's members.
func (s *Membership) progressOf(ctx context.Context, of Group) map[keys.ReplicaID]group.Progress {
	found := make(chan map[keys.ReplicaID]group.Progress, 1)
	of.Followers(func(p map[keys.ReplicaID]group.Progress) { found <- p })
	select {
	case p := <-found:
		return p
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return nil
}

// answersCore says whether a member was heard of lately.
func (s *Membership) answersCore(id uint64, progress map[keys.ReplicaID]group.Progress) bool {
	p, ok := progress[keys.ReplicaID(id)]
	if !ok || !p.Active {
		return false
	}
	return !s.config.Silent(id)
}
