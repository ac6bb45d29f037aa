package etcdmembers

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdmetrics"
	"github.com/tidemarkdb/tidemark/deploy/embedded/spacealarm"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Config configures a Cluster. All fields are required.
type Config struct {
	// ID is the cluster's id. Member is the id of this server's data directory, which is the member's
	// id.
	ID, Member uint64
	// TLS is set if the members' addresses are https addresses.
	TLS bool
	// Core reaches the leader of the core.
	Core *coreclient.Client
	// Known lists the members that this server's member of the core knows.
	Known func() []*clusterpb.CoreMember
	// Pings returns this member's clock and those of the others, from the pings that the members
	// send one another.
	Pings func() (own int64, others map[uint64]int64)
	// Space raises alarms for lack of disk space.
	Space *spacealarm.Alarm
	// Store and Group are this server's part of the coordination store.
	Store *store.Store
	Group *host.Group
}

// Cluster shows and changes the members of the core for the etcd API.
type Cluster struct {
	Config
	// committed is the index up to which the log was known to be committed when this server opened
	// its part of the coordination store.
	committed uint64
}

// New makes a Cluster of a part of the coordination store that has just opened.
func New(config Config) *Cluster {
	return &Cluster{Config: config, committed: config.Group.Committed()}
}

var _ backend.Cluster = (*Cluster)(nil)

const (
	// membersLook is the interval at which a change of the members is checked while a call waits for
	// it.
	membersLook = 50 * time.Millisecond
	// moveTimeout limits a transfer of the leadership.
	moveTimeout = 5 * time.Second
	// promotable is the number of entries that a learner may lack and still be promoted.
	promotable = 1000
)

// ClusterID implements backend.Cluster.
func (c *Cluster) ClusterID() uint64 { return c.ID }

// MemberID implements backend.Cluster.
func (c *Cluster) MemberID() uint64 { return c.Member }

// MemberOf implements backend.Cluster.
func (c *Cluster) MemberOf(id keys.ReplicaID) uint64 {
	for _, m := range c.Store.Members().GetMembers() {
		if m.Replica == uint64(id) {
			return m.Server
		}
	}
	return 0
}

// LeaderElsewhere returns the address of the member that leads the coordination store. It returns
// "" if this member leads, or if the leader is unknown.
func (c *Cluster) LeaderElsewhere() string {
	l, _ := c.Store.Leadership()
	if l.IsLeader || l.Leader == 0 {
		return ""
	}
	for _, m := range c.Store.Members().GetMembers() {
		if m.Replica == uint64(l.Leader) {
			return m.Address
		}
	}
	return ""
}

// Clocks implements backend.Cluster. It returns the known clocks of voters, and the number of
// voters.
func (c *Cluster) Clocks() (clocks []int64, members int) {
	own, peers := c.Pings()
	self := c.MemberID()
	for _, m := range c.Store.Members().GetMembers() {
		if m.Role == storepb.MemberRole_LEARNER {
			continue
		}
		members++
		if peer, heard := peers[m.Replica]; m.Server == self {
			clocks = append(clocks, own)
		} else if heard {
			clocks = append(clocks, peer)
		}
	}
	return clocks, members
}

// Learner implements backend.Cluster.
func (c *Cluster) Learner() bool {
	m := c.self()
	return m == nil || m.Role == storepb.MemberRole_LEARNER
}

// Filled reports whether this member's state shows the member in its present role. Otherwise the
// member answers nothing: it was added and has no state yet; or it has started, and has not applied
// its own addition or promotion; or it was removed.
func (c *Cluster) Filled() bool {
	return filled(c.self(), c.Store.AppliedIndex(), c.committed)
}

// filled does the same for a member that has applied the log up to an index. self is the member in
// that state, or nil if the state does not contain the member.
func filled(self *storepb.Member, applied, committed uint64) bool {
	return self != nil && (self.Role != storepb.MemberRole_LEARNER || applied >= committed)
}

// self returns this member in the applied state of this server. It returns nil if the member is not
// in that state.
func (c *Cluster) self() *storepb.Member {
	id := c.MemberID()
	for _, m := range c.Store.Members().GetMembers() {
		if m.Server == id {
			return m
		}
	}
	return nil
}

// Members implements backend.Cluster.
func (c *Cluster) Members(
	ctx context.Context, linearizable bool,
) ([]backend.Member, error) {
	if linearizable {
		list, err := c.Core.ListCore(ctx, &clusterpb.ListCoreRequest{})
		if err != nil {
			return nil, err
		}
		return c.list(list.GetMembers().GetMembers()), nil
	}
	return c.list(c.Known()), nil
}

func (c *Cluster) list(members []*clusterpb.CoreMember) []backend.Member {
	scheme := "http"
	if c.TLS {
		scheme = "https"
	}
	list := make([]backend.Member, len(members))
	for i, m := range members {
		at := []string{scheme + "://" + m.Address}
		list[i] = backend.Member{ID: m.Server, Name: m.Address, PeerURLs: at, ClientURLs: at,
			Learner: m.Role == clusterpb.ReplicaRole_LEARNER}
	}
	return list
}

// Add implements backend.Cluster.
func (c *Cluster) Add(
	ctx context.Context, peerURLs []string, learner bool,
) (added backend.Member, members []backend.Member, err error) {
	address, err := addressOf(peerURLs)
	if err != nil {
		return added, nil, err
	}
	now, err := c.Core.ListCore(ctx, &clusterpb.ListCoreRequest{})
	if err != nil {
		return added, nil, err
	}
	if err := mayAdd(now); err != nil {
		return added, nil, err
	}
	if memberAt(now.GetMembers().GetMembers(), address) != nil {
		return added, nil, rpctypes.ErrGRPCPeerURLExist
	}
	r := &clusterpb.ChangeCoreRequest{Add: address}
	if learner {
		r = &clusterpb.ChangeCoreRequest{Learner: address}
	}
	members, err = c.change(ctx, r,
		func(all []*clusterpb.CoreMember) bool { return memberAt(all, address) != nil })
	for _, m := range members {
		if m.Name == address {
			added = m
		}
	}
	return added, members, err
}

// addressOf returns the address of a server from its peer URLs, of which there is at least one.
func addressOf(peerURLs []string) (string, error) {
	if len(peerURLs) != 1 {
		return "", rpctypes.ErrGRPCMemberBadURLs
	}
	at, err := url.Parse(peerURLs[0])
	if err != nil || at.Host == "" {
		return "", rpctypes.ErrGRPCMemberBadURLs
	}
	return at.Host, nil
}

// memberError converts the error of a refused change of members for clients of etcd. It uses etcd's
// own error if there is one.
func memberError(err error) error {
	switch membership.RefusalOf(err) {
	case clusterpb.CoreRefusal_NO_QUORUM:
		return rpctypes.ErrGRPCUnhealthy
	case clusterpb.CoreRefusal_TOO_MANY_LEARNERS:
		return rpctypes.ErrGRPCTooManyLearners
	case clusterpb.CoreRefusal_LEARNER_NOT_READY:
		return rpctypes.ErrGRPCLearnerNotReady
	case clusterpb.CoreRefusal_NOT_FOUND:
		return rpctypes.ErrGRPCMemberNotFound
	case clusterpb.CoreRefusal_ADDRESS_TAKEN:
		return rpctypes.ErrGRPCPeerURLExist
	}
	return err
}

func memberAt(all []*clusterpb.CoreMember, address string) *clusterpb.CoreMember {
	for _, m := range all {
		if m.Address == address {
			return m
		}
	}
	return nil
}

func memberOfServer(all []*clusterpb.CoreMember, id uint64) *clusterpb.CoreMember {
	for _, m := range all {
		if m.Server == id {
			return m
		}
	}
	return nil
}

// change begins a change of the members, and waits until its goal is reached.
func (c *Cluster) change(ctx context.Context, r *clusterpb.ChangeCoreRequest,
	done func([]*clusterpb.CoreMember) bool) ([]backend.Member, error) {
	begun, err := c.Core.ChangeCore(ctx, r)
	if err != nil {
		return nil, memberError(err)
	}
	for {
		list, err := c.Core.ListCore(ctx, &clusterpb.ListCoreRequest{})
		if err != nil {
			return nil, err
		}
		// The change is over only when the coordination store's members have changed, too.
		over := list.GetChange() == nil || list.GetChange().Id != begun.GetChange()
		members := list.GetMembers().GetMembers()
		switch {
		case over && done(staying(members, list.GetChange())):
			return c.list(members), nil
		case over && begun.GetChange() != 0:
			return nil, status.Error(codes.FailedPrecondition, "etcdserver: the change of the members "+
				"was taken back by another one, or undone; list the members, and ask again")
		}
		if err := backoff.Sleep(ctx, membersLook); err != nil {
			return nil, err
		}
	}
}

// staying returns the members without the one that a change under way removes. If the change undoes
// an addition, that addition was not completed.
func staying(all []*clusterpb.CoreMember, change *clusterpb.CoreChange) []*clusterpb.CoreMember {
	return slices.DeleteFunc(slices.Clone(all), func(m *clusterpb.CoreMember) bool {
		return m.Replica == change.GetRemoveReplica()
	})
}

// Remove implements backend.Cluster.
func (c *Cluster) Remove(ctx context.Context, id uint64) ([]backend.Member, error) {
	now, err := c.Core.ListCore(ctx, &clusterpb.ListCoreRequest{})
	if err != nil {
		return nil, err
	}
	m := memberOfServer(now.GetMembers().GetMembers(), id)
	if m == nil {
		return nil, rpctypes.ErrGRPCMemberNotFound
	}
	if err := mayRemove(now, m); err != nil {
		return nil, err
	}
	return c.change(ctx, &clusterpb.ChangeCoreRequest{Remove: fmt.Sprint(m.Replica)},
		func(all []*clusterpb.CoreMember) bool { return memberOfServer(all, id) == nil })
}

// Update implements backend.Cluster. It records the present or the next address of a member. The
// member's server decides in the end: if it answers at its former address, that address stays.
func (c *Cluster) Update(
	ctx context.Context, id uint64, peerURLs []string,
) ([]backend.Member, error) {
	now, err := c.Core.ListCore(ctx, &clusterpb.ListCoreRequest{})
	if err != nil {
		return nil, err
	}
	members := now.GetMembers().GetMembers()
	m := memberOfServer(members, id)
	if m == nil {
		return nil, rpctypes.ErrGRPCMemberNotFound
	}
	address, err := addressOf(peerURLs)
	if err != nil {
		return nil, err
	}
	if other := memberAt(members, address); other != nil && other.Server != id {
		return nil, rpctypes.ErrGRPCPeerURLExist
	}
	return c.change(ctx, &clusterpb.ChangeCoreRequest{Move: fmt.Sprint(m.Replica), MoveTo: address},
		func([]*clusterpb.CoreMember) bool { return true })
}

// Promote implements backend.Cluster.
func (c *Cluster) Promote(ctx context.Context, id uint64) ([]backend.Member, error) {
	list, err := c.Core.ListCore(ctx, &clusterpb.ListCoreRequest{})
	if err != nil {
		return nil, err
	}
	m := memberOfServer(list.GetMembers().GetMembers(), id)
	switch {
	case m == nil:
		return nil, rpctypes.ErrGRPCMemberNotFound
	case m.Role != clusterpb.ReplicaRole_LEARNER:
		return nil, rpctypes.ErrGRPCMemberNotLearner
	}
	for _, state := range list.States {
		if state.Replica == m.Replica &&
			(!state.Answers || state.Snapshot || state.Behind > promotable) {
			return nil, rpctypes.ErrGRPCLearnerNotReady
		}
	}
	return c.change(ctx, &clusterpb.ChangeCoreRequest{Add: m.Address},
		func(all []*clusterpb.CoreMember) bool {
			now := memberOfServer(all, id)
			return now != nil && now.Role == clusterpb.ReplicaRole_VOTER
		})
}

// MoveLeader implements backend.Cluster.
func (c *Cluster) MoveLeader(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, moveTimeout, rpctypes.ErrGRPCTimeout)
	defer cancel()
	l, _ := c.Store.Leadership()
	var to keys.ReplicaID
	for _, m := range c.Store.Members().GetMembers() {
		if m.Server == id && m.Role == storepb.MemberRole_VOTER {
			to = keys.ReplicaID(m.Replica)
		}
	}
	if to == 0 {
		return rpctypes.ErrGRPCBadLeaderTransferee
	}
	c.Group.TransferLeader(l.Term, to)
	for {
		now, changed := c.Store.Leadership()
		if now.Leader == to {
			return nil
		}
		if now.Term != l.Term && now.Leader != 0 {
			return rpctypes.ErrGRPCLeaderChanged
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Peers lists the other members in the applied state of this server.
func (c *Cluster) Peers() (peers []etcdmetrics.Peer) {
	self := c.MemberID()
	for _, m := range c.Store.Members().GetMembers() {
		if m.Server != self {
			peers = append(peers, etcdmetrics.Peer{ID: etcdmetrics.ID(m.Server), Address: m.Address})
		}
	}
	return peers
}

// GiveBack implements backend.Cluster.
func (c *Cluster) GiveBack(ctx context.Context) error { return c.Space.GiveBack(ctx) }
