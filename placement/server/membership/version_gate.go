package membership

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// versionsLook is the interval at which a member asks the others what their versions know, and
	// versionsAgain the interval as long as it does not know that of each.
	versionsLook  = 10 * time.Second
	versionsAgain = time.Second
)

// versions is what is known of the versions that the members of the core run. Each member asks all
// others, so that a new leader knows.
//
// For a member that does not answer, its last answer counts. If it has never answered since this
// member was started, another member may have heard it: what that member knows of all members
// counts, as long as the members are the same.
type versions struct {
	// changed tells learnVersions that the members have changed. Capacity 1.
	changed chan struct{}

	mu struct {
		sync.Mutex
		// heard are the reports of members, by their replica ids.
		heard map[uint64]memberVersion
		// told is the most that any other member knows of all members at a version of the record,
		// and least is what this member knows of them.
		told, least allVersions
		// coming is the newcomer that is being added, if there is one.
		coming newcomer
	}
}

// newcomer is a server that is being added to the members, and the newest format of commands that
// it knows. Until it is a member, nothing is proposed at which it would stop.
type newcomer struct {
	server   uint64
	commands uint32
}

// memberVersion is what a member's version knows.
type memberVersion struct {
	commands uint32
	learners bool
}

// allVersions is the newest format of commands that all members know, at a version of their record.
type allVersions struct {
	members  uint64
	commands uint32
}

// ForgetVersion forgets what a member has said of its version, as if the member had been silent
// since this one was started.
func (s *Membership) ForgetVersion(replica uint64) {
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	delete(s.versions.mu.heard, replica)
}

// SayVersion adds to a server's report of itself what its version knows, and to that of a member of
// the core what it knows of the others. s is nil for a server that is no member. It does not block.
func (s *Membership) SayVersion(h *clusterpb.BootstrapHello) {
	h.Commands, h.Learners = store.NewestFormat, true
	if s == nil {
		return
	}
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	h.MembersVersion = s.versions.mu.least.members
	h.MembersCommands = s.versions.mu.least.commands
}

// learnVersions asks the members what their versions know, again and again, and tells the stores.
// It is one goroutine, from New to Close.
func (s *Membership) learnVersions() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.askVersions()
		wait := versionsLook
		if s.weighVersions() < store.NewestFormat {
			wait = versionsAgain
		}
		timer.Reset(wait)
		select {
		case <-s.ctx.Done():
			return
		case <-s.versions.changed:
		case <-timer.C:
		}
	}
}

// weighChanges weighs the versions whenever the members have changed, whatever question is under
// way: a new member counts at once, as one that was not heard. It is one goroutine, from New to
// Close.
func (s *Membership) weighChanges() {
	for {
		changed := s.store.MembersChanged()
		s.weighVersions()
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		}
		select {
		case s.versions.changed <- struct{}{}:
		default:
		}
	}
}

// versionsOf returns the members whose versions count, for a record of them: those of the core, and
// those that the coordination store still has.
func (s *Membership) versionsOf(record *storepb.Members) []*storepb.Member {
	all := slices.Clone(record.GetMembers())
	if part := s.coordination.part.Load(); part != nil {
		for _, m := range part.Store.Members().GetMembers() {
			if !slices.ContainsFunc(all, func(x *storepb.Member) bool { return x.Replica == m.Replica }) {
				all = append(all, m)
			}
		}
	}
	return all
}

// askVersions asks each member that is not silent.
func (s *Membership) askVersions() {
	for _, m := range s.versionsOf(s.store.Members()) {
		if s.ctx.Err() == nil && !s.config.Silent(m.Replica) {
			s.askVersion(s.ctx, m)
		}
	}
}

// askVersion asks a member, and returns what is known of its version; known is set if it has
// reported it, now or before.
func (s *Membership) askVersion(
	ctx context.Context, m *storepb.Member,
) (version memberVersion, known bool) {
	v := &s.versions
	own := m.Server != 0 && m.Server == s.config.Self
	h := &clusterpb.BootstrapHello{Server: m.Server}
	var err error
	if own {
		s.SayVersion(h)
	} else {
		limited, cancel := context.WithTimeout(ctx, helloTimeout)
		h, err = s.config.Hello(limited, m.Address)
		cancel()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case status.Code(err) == codes.Unimplemented:
		h = nil // it reports nothing of itself, and so knows nothing of this
	case err != nil, m.Server != 0 && h.Server != m.Server:
		version, known = v.mu.heard[m.Replica]
		return version, known
	}
	version = memberVersion{commands: h.GetCommands(), learners: h.GetLearners()}
	v.mu.heard[m.Replica] = version
	told := allVersions{h.GetMembersVersion(), h.GetMembersCommands()}
	if now := s.store.Members().GetVersion(); !own && told.members == now &&
		(v.mu.told.members != now || told.commands > v.mu.told.commands) {
		v.mu.told = told
	}
	return version, true
}

// weighVersions finds the newest format that all members know, tells the stores, and returns it; 0:
// not known.
func (s *Membership) weighVersions() uint32 {
	s.versions.mu.Lock()
	before, least := s.weighLocked()
	s.versions.mu.Unlock()
	if before != least {
		s.config.Logger.Debug("up to which format all members of the core know commands is found out",
			"format", least, "before", before)
	}
	return least
}

// weighLocked is weighVersions with versions.mu held; before is its former result.
//
// INVARIANT: a result holds for the version of the record with which it is kept, and a later result
// comes from a later or the same record: the record is read with the lock held.
func (s *Membership) weighLocked() (before, least uint32) {
	v := &s.versions
	record := s.store.Members()
	members, now := s.versionsOf(record), record.GetVersion()
	for replica := range v.mu.heard {
		if !slices.ContainsFunc(members, func(m *storepb.Member) bool { return m.Replica == replica }) {
			delete(v.mu.heard, replica)
		}
	}
	least = store.NewestFormat
	if len(members) == 0 {
		least = 0 // this member has no record yet
	}
	for _, m := range members {
		commands := v.mu.heard[m.Replica].commands
		if _, heard := v.mu.heard[m.Replica]; !heard && v.mu.told.members == now {
			commands = v.mu.told.commands
		}
		least = min(least, commands)
	}
	switch {
	case v.mu.coming.server == 0:
	case memberByServer(record, v.mu.coming.server) != nil:
		v.mu.coming = newcomer{} // it counts as the others do
	default:
		least = min(least, v.mu.coming.commands)
	}
	before = v.mu.least.commands
	v.mu.least = allVersions{now, least}
	s.store.MembersKnow(least)
	if part := s.coordination.part.Load(); part != nil {
		part.Store.MembersKnow(least)
	}
	return before, least
}

// knowLearners refuses to add a learner while a member may not know of learners: it would make the
// learner a voter when it leads.
func (s *Membership) knowLearners(ctx context.Context, members *storepb.Members) error {
	for _, m := range members.GetMembers() {
		switch version, known := s.askVersion(ctx, m); {
		case !known:
			return status.Errorf(codes.FailedPrecondition, "the member of the core at %s does not "+
				"answer, and may run a version that knows of no members without a vote: bring it back, "+
				"or remove it first, or add the server as a voter", m.Address)
		case !version.learners:
			return status.Errorf(codes.FailedPrecondition, "the member of the core at %s runs an older "+
				"version, which knows of no members without a vote: upgrade all members first", m.Address)
		}
	}
	return nil
}
