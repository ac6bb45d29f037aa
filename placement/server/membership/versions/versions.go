package versions

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// versionsLook is the interval at which a member asks the others what their versions support.
	// versionsAgain is the shorter interval while the answer of a member is missing.
	versionsLook  = 10 * time.Second
	versionsAgain = time.Second
)

// Members has the questions to the members of the core.
type Members interface {
	// Hello asks the server at an address for its identity and version.
	Hello(ctx context.Context, address string) (*clusterpb.BootstrapHello, error)
	// Silent reports whether a member has been silent for an election timeout.
	Silent(replica uint64) bool
	// Second returns this member's part of the coordination store. It is nil until the part is open.
	Second() *store.Store
}

// Config configures Versions. All but Self must be set.
type Config struct {
	Store   *store.Store
	Members Members
	// Self is the id of this server. It need not ask itself. If Self is 0, it does.
	Self   uint64
	Logger *slog.Logger
}

// Versions has what is known of the versions that the members of the core run. Each member asks all
// others, so that a new leader knows the versions.
//
// For a member that does not answer, its last answer counts. If it has never answered since this
// member was started, another member may have an answer: that other member's result for all members
// counts, as long as the members are the same.
type Versions struct {
	config Config
	store  *store.Store
	// changed tells WeighChanges that the members have changed. Capacity 1.
	changed chan struct{}

	mu struct {
		sync.Mutex
		// heard has the reports of members, by their replica ids.
		heard map[uint64]memberVersion
		// told is the best result for all members that another member has reported, for a version of the
		// record of members. least is this member's own result.
		told, least allVersions
		// coming is the newcomer that is being added, if there is one.
		coming newcomer
	}
}

// New makes Versions without any report.
func New(config Config) *Versions {
	v := &Versions{config: config, store: config.Store, changed: make(chan struct{}, 1)}
	v.mu.heard = map[uint64]memberVersion{}
	return v
}

// newcomer is a server that is being added to the members. Its newest known format of commands
// limits what is proposed until it is a member.
type newcomer struct {
	server   uint64
	commands uint32
}

// memberVersion describes what a member's version supports.
type memberVersion struct {
	commands uint32
	learners bool
}

// allVersions is the newest format of commands that all members know, for a version of the record
// of members.
type allVersions struct {
	members  uint64
	commands uint32
}

// Forget drops the report of a member, as if the member had been silent since this member was
// started.
func (v *Versions) Forget(replica uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.mu.heard, replica)
}

// Say adds to a server's report about itself what its version supports. On a member of the core, it
// also adds what the member knows of the other members. v is nil on a server that is no member. Say
// does not block.
func (v *Versions) Say(h *clusterpb.BootstrapHello) {
	h.Commands, h.Learners = store.NewestFormat, true
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	h.MembersVersion = v.mu.least.members
	h.MembersCommands = v.mu.least.commands
}

// Learn asks the members repeatedly what their versions support, and tells the stores. It ends with
// the context.
func (v *Versions) Learn(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		v.askAll(ctx)
		wait := versionsLook
		if v.Weigh() < store.NewestFormat {
			wait = versionsAgain
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-v.changed:
		case <-timer.C:
		}
	}
}

// WeighChanges recomputes the result whenever the members have changed, even while a question is
// under way. A new member counts at once, as a member without a report. It ends with the context.
func (v *Versions) WeighChanges(ctx context.Context) {
	for {
		changed := v.store.MembersChanged()
		v.Weigh()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		select {
		case v.changed <- struct{}{}:
		default:
		}
	}
}

// countedOf returns the members whose versions count, for a record of members: the members of the
// core, and members that only the coordination store still has.
func (v *Versions) countedOf(record *storepb.Members) []*storepb.Member {
	all := slices.Clone(record.GetMembers())
	if part := v.config.Members.Second(); part != nil {
		for _, m := range part.Members().GetMembers() {
			if !slices.ContainsFunc(all, func(x *storepb.Member) bool { return x.Replica == m.Replica }) {
				all = append(all, m)
			}
		}
	}
	return all
}

// askAll asks each member that is not silent.
func (v *Versions) askAll(ctx context.Context) {
	for _, m := range v.countedOf(v.store.Members()) {
		if ctx.Err() == nil && !v.config.Members.Silent(m.Replica) {
			v.ask(ctx, m)
		}
	}
}

// ask asks a member, and returns what is known of its version. known is set if the member has
// reported its version, now or earlier.
func (v *Versions) ask(
	ctx context.Context, m *storepb.Member,
) (version memberVersion, known bool) {
	own := m.Server != 0 && m.Server == v.config.Self
	h := &clusterpb.BootstrapHello{Server: m.Server}
	var err error
	if own {
		v.Say(h)
	} else {
		h, err = v.config.Members.Hello(ctx, m.Address)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case status.Code(err) == codes.Unimplemented:
		h = nil // the answer has no report, so the version knows nothing of this
	case err != nil, m.Server != 0 && h.Server != m.Server:
		version, known = v.mu.heard[m.Replica]
		return version, known
	}
	version = memberVersion{commands: h.GetCommands(), learners: h.GetLearners()}
	v.mu.heard[m.Replica] = version
	told := allVersions{h.GetMembersVersion(), h.GetMembersCommands()}
	if now := v.store.Members().GetVersion(); !own && told.members == now &&
		(v.mu.told.members != now || told.commands > v.mu.told.commands) {
		v.mu.told = told
	}
	return version, true
}

// Weigh computes the newest format that all members know, tells the stores, and returns it. 0 means
// that it is not known.
func (v *Versions) Weigh() uint32 {
	v.mu.Lock()
	before, least := v.weighLocked()
	v.mu.Unlock()
	if before != least {
		v.config.Logger.Debug("up to which format all members of the core know commands is found out",
			"format", least, "before", before)
	}
	return least
}

// weighLocked does the work of Weigh. The caller holds the lock. before is the former result.
//
// INVARIANT: a result is valid for the version of the record of members with which it is stored. A
// later result belongs to the same or a later version, because the record is read with the lock
// held.
func (v *Versions) weighLocked() (before, least uint32) {
	record := v.store.Members()
	members, now := v.countedOf(record), record.GetVersion()
	for replica := range v.mu.heard {
		if !slices.ContainsFunc(members, func(m *storepb.Member) bool { return m.Replica == replica }) {
			delete(v.mu.heard, replica)
		}
	}
	least = store.NewestFormat
	if len(members) == 0 {
		least = 0 // this member has no record of members yet
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
	case roster.ByServer(record, v.mu.coming.server) != nil:
		v.mu.coming = newcomer{} // it is a member now, and counts as such
	default:
		least = min(least, v.mu.coming.commands)
	}
	before = v.mu.least.commands
	v.mu.least = allVersions{now, least}
	v.store.MembersKnow(least)
	if part := v.config.Members.Second(); part != nil {
		part.MembersKnow(least)
	}
	return before, least
}

// KnowLearners refuses to add a learner while a member may not know learners. Such a member would
// make the learner a voter when it leads.
func (v *Versions) KnowLearners(ctx context.Context, members *storepb.Members) error {
	for _, m := range members.GetMembers() {
		switch version, known := v.ask(ctx, m); {
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

// Unknowing returns the addresses of the members of the core that prevent the use of the newest
// format of commands, as far as this member knows. unheard are members without a report, to this
// member since it was started or to another member that has passed it on. older are members whose
// report lacks something that this version supports. The caller owns the slices. Unknowing blocks
// only on a short lock.
func (v *Versions) Unknowing() (unheard, older []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.unknowingLocked()
}

// unknowingLocked does the work of Unknowing. The caller holds the lock.
func (v *Versions) unknowingLocked() (unheard, older []string) {
	record := v.store.Members()
	told := v.mu.told.members == record.GetVersion() && v.mu.told.commands > 0
	for _, m := range v.countedOf(record) {
		version, heard := v.mu.heard[m.Replica]
		switch {
		case !heard && !told:
			unheard = append(unheard, m.Address)
		case heard && version.commands < store.NewestFormat:
			older = append(older, m.Address)
		}
	}
	return unheard, older
}
