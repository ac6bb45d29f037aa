package membership

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// checkTimeout is how long a member may take to report its health.
	checkTimeout = time.Second
	// activeAgain is the time after which a member that does not seem to answer is looked at again:
	// Raft takes all followers for inactive for a moment, each time it has checked the quorum.
	activeAgain = 300 * time.Millisecond
)

// Health returns what this member knows of itself and of the others. Any member answers, whether it
// leads or not.
func (s *Membership) Health(
	ctx context.Context, r *clusterpb.CheckRequest,
) (*clusterpb.MemberHealth, error) {
	if err := s.meta.CheckCluster(r.Cluster); err != nil {
		return nil, err
	}
	return s.health(ctx), nil
}

// DiskState says how the disk is that a member writes its log to.
type DiskState struct {
	// Slow is set if the log takes many times longer to sync than the logs of other members;
	// Stalled, if a write has not ended for longer than an election timeout.
	Slow, Stalled bool
	// Sync is how long a sync takes; 0: it is not known.
	Sync time.Duration
}

// health is what this member says of itself and of the others.
func (s *Membership) health(ctx context.Context) *clusterpb.MemberHealth {
	h := &clusterpb.MemberHealth{}
	if s.config.Own.NotReady != nil {
		h.NotReady = s.config.Own.NotReady()
	}
	if s.config.Own.Disk != nil {
		d := s.config.Own.Disk()
		h.DiskSlow, h.DiskStalled, h.SyncMicros = d.Slow, d.Stalled, uint64(d.Sync.Microseconds())
	}
	members := s.store.Members().GetMembers()
	for _, m := range members {
		if s.config.Silent(m.Replica) {
			h.Silent = append(h.Silent, m.Replica)
		}
	}
	if s.config.Own.CoordinationErr != nil {
		if err := s.config.Own.CoordinationErr(); err != nil {
			h.CoordinationFailed = "its log says why" // anybody may ask, and the error can name a key
		}
	}
	part := s.coordination.part.Load()
	if part == nil {
		return h
	}
	h.CoordinationOpen = true
	for _, a := range part.Store.Alarms() {
		kind := "CORRUPT"
		if a.Type == storepb.Alarm_NO_SPACE {
			kind = "NOSPACE"
		}
		h.Alarms = append(h.Alarms, &clusterpb.CoordinationAlarm{Server: a.Member, Type: kind})
	}
	if l, _ := part.Store.Leadership(); !l.IsLeader {
		return h
	}
	followers := s.followersOf(ctx, part.Group)
	if followers == nil {
		return h // it does not lead any more
	}
	h.LeadsCoordination = true
	for _, m := range part.Store.Members().GetMembers() {
		f, ok := followers[keys.ReplicaID(m.Replica)]
		if !ok {
			continue
		}
		h.CoordinationFollowers = append(h.CoordinationFollowers, f)
	}
	return h
}

// followersOf returns what this member, as the leader of a group, knows of the others; nil if it
// does not lead.
func (s *Membership) followersOf(
	ctx context.Context, of Group,
) map[keys.ReplicaID]*clusterpb.CoreFollower {
	var followers map[keys.ReplicaID]*clusterpb.CoreFollower
	for look := range 2 {
		progress := s.progressOf(ctx, of)
		if progress == nil {
			return nil
		}
		applied, all := of.Applied(), true
		if followers == nil {
			followers = map[keys.ReplicaID]*clusterpb.CoreFollower{}
		}
		for id, p := range progress {
			f := follower(id, p, applied)
			f.Answers = s.answersCore(f.Replica, progress) ||
				followers[id].GetAnswers() && !s.config.Silent(f.Replica)
			followers[id] = f
			all = all && (f.Answers || s.config.Silent(f.Replica))
		}
		if all || look > 0 {
			break
		}
		select {
		case <-time.After(activeAgain):
		case <-ctx.Done():
			return followers
		}
	}
	return followers
}

// follower returns a follower's progress in its reported form, without whether it answers. applied
// is the leader's applied index.
func follower(id keys.ReplicaID, p group.Progress, applied uint64) *clusterpb.CoreFollower {
	return &clusterpb.CoreFollower{Replica: uint64(id), Behind: applied - min(applied, p.Match),
		Snapshot: p.Snapshot || p.Match == 0} // without any entry it needs one
}

// checkMembers asks all members that answer for their health, and adds it to what is known of them.
// A member of a version that does not know the call is left out. A member that does not answer the
// call counts as not ready: its server may be starting, or have come to a standstill.
func (s *Membership) checkMembers(
	ctx context.Context, members []*clusterpb.CoreMember, states []*clusterpb.CoreMemberState,
) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l, _ := s.store.Leadership()
	var asking sync.WaitGroup
	for i, m := range members {
		asking.Go(func() {
			switch {
			case keys.ReplicaID(m.Replica) == l.Leader:
				states[i].Health = s.health(ctx)
			case s.config.Check != nil && states[i].Answers:
				h, err := s.config.Check(ctx, m.Address)
				if err != nil && status.Code(err) != codes.Unimplemented {
					h = &clusterpb.MemberHealth{NotReady: []string{"it does not say how it is: " +
						wire.Reason(err)}}
				}
				states[i].Health = h
			}
		})
	}
	asking.Wait()
}
