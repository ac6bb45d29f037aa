package membership

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Coordination is a member's part of the coordination store.
type Coordination struct {
	// Store is the store. The Membership does not close it.
	Store *store.Store
	Group Group
}

// coordinationState is this member's state of the coordination store and of its changes of members.
type coordinationState struct {
	// part is nil until it is open.
	part atomic.Pointer[Coordination]
	// leaving is set if this member is no longer a member of the core.
	leaving atomic.Bool
	// left is closed when leaving is set.
	left chan struct{}
	once sync.Once

	mu struct {
		sync.Mutex
		// step is the last step, while this member leads.
		step roster.Step
	}
	// fenced and said have the same meanings as in coreChanges. Only followMembers uses them.
	fenced [2]uint64
	said   string
}

func (c *coordinationState) setStep(step roster.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.step = step
}

func (c *coordinationState) lastStep() roster.Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.step
}

// OpenCoordination gives the Membership this member's part of the coordination store. It is called
// once, before the Server is closed. From then on, while this member leads the coordination store,
// the members of that store follow the members of the core.
func (s *Membership) OpenCoordination(c Coordination) {
	s.coordination.part.Store(&c)
	s.versions.Weigh()
	s.core.poke()
	s.running.Go(func() { s.followMembers(&c) })
}

// LeaveCoordination records that this member is no longer a member of the core. It will soon be
// removed from the coordination store, and gives up the leadership of that store.
func (s *Membership) LeaveCoordination() {
	s.coordination.leaving.Store(true)
	s.coordination.once.Do(func() { close(s.coordination.left) })
}

// followMembers makes the members of the coordination store follow the members of the core, on the
// leader of the coordination store. It is one goroutine, from OpenCoordination to Close.
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
			s.core.poke() // the core may wait for the coordination store
		case <-left:
			left = nil
		case <-timer.C:
		}
	}
}

// tellCoordination logs a text, unless the last text was the same.
func (s *Membership) tellCoordination(what, text string) {
	if s.coordination.said != text {
		s.coordination.said = text
		s.config.Logger.Info(what, "step", text)
	}
}

// followMember takes one step towards the members of the core, if the members differ.
func (s *Membership) followMember(ctx context.Context, c *Coordination,
	l store.Leadership) (underWay bool, err error) {
	target, members := s.store.Members(), c.Store.Members()
	leaving := s.coordination.leaving.Load()
	configuration := store.ConfigurationOf(members)
	if target.GetVersion() <= members.GetVersion() && !leaving &&
		configuration.Electable(keys.ReplicaID(l.Leader)) {
		s.coordination.setStep(roster.Step{})
		return false, nil
	}
	progress := s.progressOf(ctx, c.Group)
	if progress == nil {
		return true, nil // this member no longer leads
	}
	applied := c.Group.Applied()
	v := &roster.FollowView{Leaving: leaving,
		Gone: s.config.Peers.Down,
		View: roster.View{Members: members, Leader: uint64(l.Leader),
			Answers: func(id uint64) bool { return s.answersCore(id, progress) },
			Averse:  s.config.Peers.LeaderAverse,
			Behind:  func(id uint64) string { return behind(progress[keys.ReplicaID(id)], applied) }}}
	step := roster.FollowStep(target, v)
	s.coordination.setStep(step)
	text := step.Text
	if step.Waits != "" {
		text += ": " + step.Waits
	}
	s.tellCoordination("changing the members of the coordination store", text)
	switch {
	case step.Waits != "":
		return true, nil
	case step.Done:
		return false, nil
	case step.Transfer != 0:
		c.Group.TransferLeader(l.Term, keys.ReplicaID(step.Transfer))
		return true, nil
	}
	// This is the same as in Membership.fence.
	if at := [2]uint64{l.Term, members.GetVersion()}; s.coordination.fenced != at {
		if _, err := c.Store.Do(ctx, store.If(nil, nil, nil)); err != nil {
			return true, err
		}
		s.coordination.fenced = at
	}
	_, err = c.Store.Do(ctx, store.FollowMembers(members.GetVersion(), step.Next))
	return true, err
}

// coordinationLags returns what a step of the core's members must wait for in the coordination
// store. It is empty if there is nothing. A store that is not founded yet will be founded with the
// members of that time.
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
	case step.Waits != "":
		text += fmt.Sprintf("; it %s: %s", step.Text, step.Waits)
	}
	return text, nil
}

// coordinationHas reports whether the coordination store may still have a server that is no longer
// a member of the core.
func (s *Membership) coordinationHas(
	v *store.View, members *storepb.Members, server uint64,
) (bool, error) {
	lags, err := s.coordinationLags(v, members)
	if err != nil || lags != "" {
		return true, err
	}
	c := s.coordination.part.Load()
	return c != nil && roster.ByServer(c.Store.Members(), server) != nil, nil
}

// coordinationFounded reports whether members must have a version that knows the coordination
// store.
func (s *Membership) coordinationFounded() bool {
	founding, err := CoordinationFounding(s.store)
	return founding != nil || err != nil
}
