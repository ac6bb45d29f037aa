package membership

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Coordination is a member's part of the coordination store.
type Coordination struct {
	// Store is not closed by the Server.
	Store *store.Store
	Group Group
}

// coordinationState is what this member knows of the coordination store, and of how its members
// follow those of the core.
type coordinationState struct {
	// part is nil until it is open.
	part atomic.Pointer[Coordination]
	// leaving is set if this member no longer is one of the core.
	leaving atomic.Bool
	// left is closed when leaving is set.
	left chan struct{}
	once sync.Once

	mu struct {
		sync.Mutex
		// step is the last step, or what it waits for, while this member leads.
		step coreStep
	}
	// fenced is as that of coreChanges. Of followMembers alone, as is said.
	fenced [2]uint64
	said   string
}

func (c *coordinationState) setStep(step coreStep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.step = step
}

func (c *coordinationState) lastStep() coreStep {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.step
}

// OpenCoordination gives the Server the member's part of the coordination store, once, before
// Close. Its members follow those of the core from then on, as long as it leads.
func (s *Membership) OpenCoordination(c Coordination) {
	s.coordination.part.Store(&c)
	if s.config.Hello != nil {
		s.weighVersions()
	}
	s.core.poke()
	s.running.Go(func() { s.followMembers(&c) })
}

// LeaveCoordination notes that this member no longer is one of the core, and is one of the
// coordination store only for a moment: it hands over the leadership of that store.
func (s *Membership) LeaveCoordination() {
	s.coordination.leaving.Store(true)
	s.coordination.once.Do(func() { close(s.coordination.left) })
}

// followMembers has the members of the coordination store follow those of the core, on the member
// that leads it. It is one goroutine, from OpenCoordination to Close.
func (s *Membership) followMembers(c *Coordination) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	left := s.coordination.left
	for {
		l, led := c.Store.Leadership()
		core, own := s.store.MembersChanged(), c.Store.MembersChanged()
		if l.Serving {
			ctx, cancel := context.WithTimeout(s.ctx, coreStepTimeout)
			underWay, err := s.followMember(ctx, c, l)
			cancel()
			if underWay || err != nil {
				timer.Reset(coreStepAgain)
			}
			if err != nil && s.ctx.Err() == nil {
				s.tellCoordination("changing the members of the coordination store is interrupted",
					err.Error())
			}
		}
		select {
		case <-s.ctx.Done():
			return
		case <-led:
		case <-core:
		case <-own:
			s.core.poke() // the core may wait for it
		case <-left:
			left = nil
		case <-timer.C:
		}
	}
}

// tellCoordination logs news.
func (s *Membership) tellCoordination(what, text string) {
	if s.coordination.said != text {
		s.coordination.said = text
		s.config.Logger.Info(what, "step", text)
	}
}

// followMember takes one step towards the core's members, if they are others.
func (s *Membership) followMember(ctx context.Context, c *Coordination,
	l store.Leadership) (underWay bool, err error) {
	target, members := s.store.Members(), c.Store.Members()
	leaving := s.coordination.leaving.Load()
	configuration := store.ConfigurationOf(members)
	if target.GetVersion() <= members.GetVersion() && !leaving &&
		configuration.Electable(keys.ReplicaID(l.Leader)) {
		s.coordination.setStep(coreStep{})
		return false, nil
	}
	progress := s.progressOf(ctx, c.Group)
	if progress == nil {
		return true, nil // this member no longer leads
	}
	applied := c.Group.Applied()
	v := &followView{leaving: leaving,
		gone: s.config.Silent,
		coreView: coreView{members: members, leader: uint64(l.Leader),
			answers: func(id uint64) bool { return s.answersCore(id, progress) },
			averse:  s.config.Averse,
			behind:  func(id uint64) string { return behind(progress[keys.ReplicaID(id)], applied) }}}
	step := followStepOf(target, v)
	s.coordination.setStep(step)
	text := step.text
	if step.waits != "" {
		text += ": " + step.waits
	}
	s.tellCoordination("changing the members of the coordination store", text)
	switch {
	case step.waits != "":
		return true, nil
	case step.done:
		return false, nil
	case step.transfer != 0:
		c.Group.TransferLeader(l.Term, keys.ReplicaID(step.transfer))
		return true, nil
	}
	// As Server.fence.
	if at := [2]uint64{l.Term, members.GetVersion()}; s.coordination.fenced != at {
		if _, err := c.Store.Do(ctx, store.If(nil, nil, nil)); err != nil {
			return true, err
		}
		s.coordination.fenced = at
	}
	_, err = c.Store.Do(ctx, store.FollowMembers(members.GetVersion(), step.next))
	return true, err
}

// coordinationLags returns what a step of the core's members waits for in the coordination store;
// empty: nothing. A store that is not founded yet is founded with the members of that time.
func (s *Membership) coordinationLags(v *store.View, members *storepb.Members) (string, error) {
	founding, _, err := loadCoordinationFounding(v)
	if err != nil || founding == nil || !s.config.Coordination {
		return "", err
	}
	c := s.coordination.part.Load()
	if c == nil {
		return "the coordination store is not open yet on the member that leads the core", nil
	}
	have := c.Store.Members().GetVersion()
	if have >= members.GetVersion() {
		return "", nil
	}
	l, _ := c.Store.Leadership()
	text := fmt.Sprintf("the coordination store makes the change before it first, from version %d "+
		"of the members to version %d", have, members.GetVersion())
	switch step := s.coordination.lastStep(); {
	case l.Leader == 0:
		text += "; no leader of it is known"
	case !l.IsLeader:
		text += fmt.Sprintf("; member %d leads it", l.Leader)
	case step.waits != "":
		text += fmt.Sprintf("; it %s: %s", step.text, step.waits)
	}
	return text, nil
}

// coordinationHas reports whether the coordination store may still have the member of a server that
// no longer is one of the core.
func (s *Membership) coordinationHas(
	v *store.View, members *storepb.Members, server uint64,
) (bool, error) {
	lags, err := s.coordinationLags(v, members)
	if err != nil || lags != "" {
		return true, err
	}
	c := s.coordination.part.Load()
	return c != nil && memberByServer(c.Store.Members(), server) != nil, nil
}

// coordinationFounded says whether the members have to know of the coordination store.
func (s *Membership) coordinationFounded() bool {
	founding, err := CoordinationFounding(s.store)
	return founding != nil || err != nil
}
