package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// coreStepAgain is the interval at which a waiting change is looked at, coreLook that at which
	// a leader looks whether there is one.
	coreStepAgain = 200 * time.Millisecond
	coreLook      = 5 * time.Second
	// coreStepTimeout bounds one step.
	coreStepTimeout = 10 * time.Second
)

// stepCore carries out changes of the core's members, on the leader. It is one goroutine, from New
// to Close. What it does next it reads from the store, so it matters little when it is interrupted.
func (s *Membership) stepCore() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l, changed := s.store.Leadership()
		if l.Serving && s.config.Group != nil {
			wait := coreLook
			s.informNodes(l)
			ctx, cancel := context.WithTimeout(s.ctx, coreStepTimeout)
			underWay, err := s.changeCore(ctx, l)
			cancel()
			if underWay || err != nil {
				wait = coreStepAgain
			}
			if _, refused, _ := hint.Of(err); err != nil && !refused && s.ctx.Err() == nil {
				s.tellCore("changing the core's members is interrupted", err.Error())
			}
			timer.Reset(wait)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		case <-s.core.poked:
		case <-timer.C:
		}
	}
}

// tellCore logs news.
func (s *Membership) tellCore(what, text string) {
	if s.core.said != text {
		s.core.said = text
		s.config.Logger.Info(what, "step", text)
	}
}

// changeCore takes one step towards the goal, if there is one.
func (s *Membership) changeCore(
	ctx context.Context, l store.Leadership,
) (underWay bool, err error) {
	view, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	g, revision, err := loadGoal(view)
	if err != nil {
		return false, err
	}
	s.versions.expect(g)
	if g == nil {
		return s.foundCoordination(ctx, view)
	}
	v := s.coreView(ctx, l)
	if v == nil {
		return true, nil // this member no longer leads
	}
	step := coreStepOf(g, v)
	if step.waits == "" && step.transfer == 0 {
		// A hand-over changes no members, and both may wait for it.
		if step.waits, err = s.coordinationLags(view, v.members); err != nil {
			return false, err
		}
	}
	s.core.setStep(l.Term, step)
	text := step.text
	if step.waits != "" {
		text += ": " + step.waits
	}
	s.tellCore("changing the core's members", text)
	switch {
	case step.waits != "":
		return true, nil
	case step.done:
		ok, err := s.meta.Commit(ctx,
			[]*storepb.Compare{store.ModifiedAt([]byte(meta.CoreGoalKey), revision)},
			store.Delete([]byte(meta.CoreGoalKey)))
		if ok {
			s.config.Logger.Info("the core's members are changed", "change", g.Id, "members",
				listMembers(v.members))
		}
		return err != nil || !ok, err
	case step.transfer != 0:
		s.config.Group.TransferLeader(l.Term, keys.ReplicaID(step.transfer))
		return true, nil
	}
	if err := s.fence(ctx, l.Term, v.members.GetVersion()); err != nil {
		return true, err
	}
	if _, err := s.store.Do(ctx, store.ChangeMembers(step.next)); err != nil {
		return true, s.meta.Status(err)
	}
	s.core.poke()
	return true, nil
}

// fence commits an entry after the one that brought the present members. A majority then knows, on
// disk, that they are committed: removed members that come back find no member that would elect
// them by the former configuration.
func (s *Membership) fence(ctx context.Context, term, version uint64) error {
	if s.core.fenced == [2]uint64{term, version} {
		return nil
	}
	if _, err := s.store.Do(ctx, store.If(nil, nil, nil)); err != nil {
		return s.meta.Status(err)
	}
	s.core.fenced = [2]uint64{term, version}
	return nil
}

// coreView returns the present state; nil if this member does not lead.
func (s *Membership) coreView(ctx context.Context, l store.Leadership) *coreView {
	progress := s.progress(ctx)
	if progress == nil {
		return nil
	}
	applied := s.config.Group.Applied()
	return &coreView{members: s.store.Members(), leader: uint64(l.Leader),
		answers: func(id uint64) bool { return s.answersCore(id, progress) },
		averse:  s.config.Averse,
		behind:  func(id uint64) string { return behind(progress[keys.ReplicaID(id)], applied) },
		mayAdd:  func(g *serverpb.CoreGoal) string { return s.mayAdd(ctx, g) }}
}

// behind says what a member lacks.
func behind(p group.Progress, applied uint64) string {
	switch {
	case p.Match == 0:
		return "it has nothing yet"
	case p.Snapshot:
		return "a snapshot is on its way"
	case p.Match+nearlyAll < applied:
		return fmt.Sprintf("it has the log up to %d of %d", p.Match, applied)
	}
	return ""
}
