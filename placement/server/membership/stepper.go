package membership

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// coreStepAgain is the interval at which a waiting change is checked. coreLook is the interval at
	// which a leader checks whether there is a change.
	coreStepAgain = 200 * time.Millisecond
	coreLook      = 5 * time.Second
	// coreStepTimeout limits one step.
	coreStepTimeout = 10 * time.Second
)

// stepCore carries out changes of the core's members on the leader. It is one goroutine, from New
// to Close. It reads its next step from the store, so it can be interrupted at any time.
func (s *Membership) stepCore() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l, changed := s.store.Leadership()
		if l.Serving {
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

// tellCore logs a text, unless the last text was the same.
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
	s.versions.Expect(g.GetAddServer())
	if g == nil {
		return s.foundCoordination(ctx, view)
	}
	v := s.coreView(ctx, l)
	if v == nil {
		return true, nil // this member no longer leads
	}
	step := roster.NextStep(g, v)
	if step.Waits == "" && step.Transfer == 0 {
		// A transfer of leadership changes no members. The core and the coordination store may both wait
		// for it.
		if step.Waits, err = s.coordinationLags(view, v.Members); err != nil {
			return false, err
		}
	}
	s.core.setStep(l.Term, step)
	text := step.Text
	if step.Waits != "" {
		text += ": " + step.Waits
	}
	s.tellCore("changing the core's members", text)
	switch {
	case step.Waits != "":
		return true, nil
	case step.Done:
		ok, err := s.meta.Commit(ctx,
			[]*storepb.Compare{store.ModifiedAt([]byte(meta.CoreGoalKey), revision)},
			store.Delete([]byte(meta.CoreGoalKey)))
		if ok {
			s.config.Logger.Info("the core's members are changed", "change", g.Id, "members",
				roster.List(v.Members))
		}
		return err != nil || !ok, err
	case step.Transfer != 0:
		s.config.Group.TransferLeader(l.Term, keys.ReplicaID(step.Transfer))
		return true, nil
	}
	if err := s.fence(ctx, l.Term, v.Members.GetVersion()); err != nil {
		return true, err
	}
	if _, err := s.store.Do(ctx, store.ChangeMembers(step.Next)); err != nil {
		return true, s.meta.Status(err)
	}
	s.core.poke()
	return true, nil
}

// fence commits an entry after the entry with the present members. Then a majority knows, on disk,
// that the present members are committed. Removed members that come back find no member that would
// elect them by the former configuration.
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

// coreView returns the present state. It returns nil if this member does not lead.
func (s *Membership) coreView(ctx context.Context, l store.Leadership) *roster.View {
	progress := s.progress(ctx)
	if progress == nil {
		return nil
	}
	applied := s.config.Group.Applied()
	return &roster.View{Members: s.store.Members(), Leader: uint64(l.Leader),
		Answers: func(id uint64) bool { return s.answersCore(id, progress) },
		Averse:  s.config.Peers.LeaderAverse,
		Behind:  func(id uint64) string { return behind(progress[keys.ReplicaID(id)], applied) },
		MayAdd:  func(g *serverpb.CoreGoal) string { return s.mayAdd(ctx, g) }}
}
