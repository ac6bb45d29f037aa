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
	// checkTimeout is the time that a member has to report its health.
	checkTimeout = time.Second
	// activeAgain is the time after which a member that seems not to answer is checked again. Each
	// time Raft has checked the quorum, it takes all followers for inactive for a moment.
	activeAgain = 300 * time.Millisecond
)

// Health returns this member's report about itself and the other members. Any member answers,
// whether it leads or not.
func (s *Membership) Health(
	ctx context.Context, r *clusterpb.CheckRequest,
) (*clusterpb.MemberHealth, error) {
	if err := s.meta.CheckCluster(r.Cluster); err != nil {
		return nil, err
	}
	return s.health(ctx), nil
}

// health is this member's report about itself and the other members.
func (s *Membership) health(ctx context.Context) *clusterpb.MemberHealth {
	own := s.config.Own
	disk, delays := own.Disk(), own.Delays()
	h := &clusterpb.MemberHealth{NotReady: own.NotReady(), DiskSlow: disk.Slow,
		DiskStalled: disk.Stalled, SyncMicros: uint64(disk.Sync.Microseconds()),
		ProcessorWaitMicros: uint64(delays.ProcessorWait.Microseconds())}
	members := s.store.Members().GetMembers()
	for _, m := range members {
		if took := delays.RoundTrips[m.Replica]; took > 0 {
			h.RoundTrips = append(h.RoundTrips,
				&clusterpb.PeerRoundTrip{Peer: m.Replica, Micros: uint64(took.Microseconds())})
		}
		if s.config.Peers.Down(m.Replica) {
			h.Silent = append(h.Silent, m.Replica)
		}
	}
	if own.CoordinationErr() != nil {
		h.CoordinationFailed = "its log says why" // anybody may ask, and the error can contain a key
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
		return h // this member does not lead any more
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

// followersOf returns what this member, as the leader of a group, knows of the other members. It
// returns nil if this member does not lead.
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
				followers[id].GetAnswers() && !s.config.Peers.Down(f.Replica)
			followers[id] = f
			all = all && (f.Answers || s.config.Peers.Down(f.Replica))
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

// follower converts a follower's progress to the reported form. It does not set whether the
// follower answers. applied is the leader's applied index.
func follower(id keys.ReplicaID, p group.Progress, applied uint64) *clusterpb.CoreFollower {
	return &clusterpb.CoreFollower{Replica: uint64(id), Behind: applied - min(applied, p.Match),
		Snapshot: p.Snapshot || p.Match == 0} // a follower without any entry needs a snapshot
}

// checkMembers asks all members that answer for their health, and adds the reports. A member of a
// version that does not know the call is skipped. A member that does not answer the call counts as
// not ready: its server may be starting, or may hang.
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
			case states[i].Answers:
				h, err := s.config.Servers.Check(ctx, m.Address)
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
