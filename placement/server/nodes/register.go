package nodes

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	maxTags = 64
)

// Register implements RegisterNode of the service Core. A directory that registers again gets the
// same node id.
func (s *Nodes) Register(
	ctx context.Context, r *clusterpb.RegisterNodeRequest,
) (*clusterpb.RegisterNodeResponse, error) {
	switch {
	// A new server does not know its cluster yet.
	case r.Cluster != 0 || r.Node != 0:
		if err := s.meta.CheckCluster(r.Cluster); err != nil {
			return nil, err
		}
	}
	if r.Server == 0 || r.Address == "" {
		return nil, status.Error(codes.InvalidArgument,
			"a node registers with the name of its data directory and its address")
	}
	if len(r.Tags) > maxTags {
		return nil, status.Errorf(codes.InvalidArgument, "a node has at most %d tags, not %d", maxTags,
			len(r.Tags))
	}
	for _, text := range append([]string{r.Address, r.HttpAddress, r.Locality.GetRegion(),
		r.Locality.GetZone(), r.Version}, r.Tags...) {
		if len(text) > meta.MaxTextBytes {
			return nil, status.Errorf(codes.InvalidArgument,
				"a node's addresses, locality and version have at most %d bytes each", meta.MaxTextBytes)
		}
	}
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	known, _, err := meta.LoadID(v, meta.ServerKey(r.Server))
	if err != nil {
		return nil, s.meta.Status(err)
	}
	guard, guardRevision, err := authflag.Load(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if err := authflag.CheckKnows(guard, r.Guard); err != nil {
		return nil, err
	}
	level, err := upgrade.Load(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if err := level.Admit(r.Address, r.Version, r.Levels); err != nil {
		return nil, err
	}
	// The node is admitted, and gets its settings, by the records in this view.
	unchanged := []*storepb.Compare{store.ModifiedAt([]byte(meta.GuardKey), guardRevision),
		level.Unchanged()}
	id := keys.NodeID(known)
	for _, claimed := range []keys.NodeID{keys.NodeID(r.Node), id} {
		if claimed == 0 {
			continue
		}
		if err := s.checkDirectory(v, claimed, r.Server); err != nil {
			return nil, err
		}
	}
	if id == 0 {
		id, err = s.addNode(ctx, v, r, unchanged)
	} else {
		err = s.updateNode(ctx, v, id, r, unchanged)
	}
	if err != nil {
		return nil, err
	}
	if l, _ := s.store.Leadership(); l.Serving {
		s.flag.NodeSays(ctx, l.Term, id, r.Guard) // replaces the report from before its restart
		s.config.Upgrade.NodeSays(l.Term, id, r.Levels)
		if known != 0 {
			s.reports.StartedNow(l.Term, id, s.config.Monotonic())
		}
	}
	// While nodes must follow users and roles, a node is alive only after its first heartbeat, which
	// confirms that the node knows this.
	if !guard.On {
		if err := s.revive(ctx, id); err != nil {
			return nil, err
		}
	}
	s.registrations.Inc()
	s.reports.Forget(id)
	s.config.Poke()
	return &clusterpb.RegisterNodeResponse{Cluster: s.config.Cluster, Node: uint64(id),
		LeaseMillis: uint64(meta.NodeLeaseTime.Milliseconds()), Guard: guard, Level: level.State()}, nil
}

// checkDirectory checks that a node id belongs to a directory. A copied, wiped or replaced
// directory must not act as the node.
func (s *Nodes) checkDirectory(v *store.View, id keys.NodeID, server uint64) error {
	var owner serverpb.Server
	revision, err := meta.Load(v, meta.DirectoryKey(id), &owner)
	switch {
	case err != nil:
		return s.meta.Status(err)
	case revision == 0:
		return status.Errorf(codes.FailedPrecondition, "node %s is not known to cluster %016x", id,
			s.config.Cluster)
	case meta.IsGone(v, id):
		return status.Errorf(codes.FailedPrecondition, "node %s %s, and its id is refused for good: "+
			"stop this server. Its data directory can be deleted, unless it is a member of the core; "+
			"with an empty one it joins as a new node", id, wasDecommissioned)
	case owner.Server != server:
		return status.Errorf(codes.FailedPrecondition,
			"node %s has another data directory (its name is %016x, this one's is %016x): "+
				"a directory that was copied, wiped or replaced cannot take a node's place. Start "+
				"the node with its own directory, or this server with an empty one, as a new node",
			id, owner.Server, server)
	}
	return nil
}

// displace declares any other node dead that is registered at the address of a node that registers:
// two nodes cannot listen at one address. So nothing is placed on a server that lost its disk and
// came back as another node, while the lease of the old node is still running. If the new address
// is a mistake and the other node exists after all, it is alive again with its next heartbeat.
// displace runs before the record is written: an attempt that is interrupted in between is repeated
// as a whole.
func (s *Nodes) displace(
	ctx context.Context, v *store.View, id keys.NodeID, address string,
) error {
	for kv, err := range v.All([]byte(meta.NodePrefix)) {
		if err != nil {
			return s.meta.Status(err)
		}
		var n clusterpb.Node
		if err := proto.Unmarshal(kv.Value, &n); err != nil || n.Address != address ||
			keys.NodeID(n.Id) == id {
			continue
		}
		if n.Status != clusterpb.NodeStatus_NODE_GONE && !n.Displaced {
			n.Displaced = true
			if _, err := s.meta.Commit(ctx, []*storepb.Compare{store.ModifiedAt(kv.Key, kv.ModRevision)},
				store.Put(kv.Key, meta.Encode(&n))); err != nil {
				return err
			}
		}
		switch _, err := s.store.Do(ctx, store.Revoke(meta.NodeLease(keys.NodeID(n.Id)))); {
		case err == nil:
			s.config.Logger.Info("node is gone: another one is at its address",
				"node", keys.NodeID(n.Id), "address", address, "other", id)
		case !errors.Is(err, store.ErrLeaseNotFound):
			return s.meta.Status(err)
		}
	}
	return nil
}

// wasDecommissioned is part of the errors of calls of nodes that are GONE.
const wasDecommissioned = "was decommissioned"

// Decommissioned reports whether an error of Register or Heartbeat says that the node is GONE.
func Decommissioned(err error) bool {
	var s interface{ GRPCStatus() *status.Status }
	return errors.As(err, &s) && s.GRPCStatus().Code() == codes.FailedPrecondition &&
		strings.Contains(s.GRPCStatus().Message(), wasDecommissioned)
}

func nodeRecord(id keys.NodeID, r *clusterpb.RegisterNodeRequest) *clusterpb.Node {
	return &clusterpb.Node{
		Id: uint64(id), Address: r.Address, HttpAddress: r.HttpAddress, Locality: r.Locality,
		Version: r.Version, StartedUnix: r.StartedUnix, Tags: r.Tags, Levels: r.Levels,
	}
}

// addNode records a new node, on condition that the records by which it was admitted are unchanged
// (packages authflag and upgrade).
func (s *Nodes) addNode(
	ctx context.Context, v *store.View, r *clusterpb.RegisterNodeRequest,
	unchanged []*storepb.Compare,
) (keys.NodeID, error) {
	ids, revision, err := meta.LoadIDs(v)
	if err != nil {
		return 0, s.meta.Status(err)
	}
	id := keys.NodeID(ids.Node)
	if err := s.displace(ctx, v, id, r.Address); err != nil {
		return 0, err
	}
	ids.Node++
	fresh := nodeRecord(id, r)
	fresh.AliveSinceUnixMs = time.Now().UnixMilli()
	ok, err := s.meta.Commit(ctx,
		append([]*storepb.Compare{store.ModifiedAt([]byte(meta.IDsKey), revision),
			store.Absent(meta.ServerKey(r.Server))}, unchanged...),
		store.Put([]byte(meta.IDsKey), meta.Encode(ids)),
		store.Put(meta.ServerKey(r.Server), meta.EncodeID(uint64(id))),
		store.Put(meta.DirectoryKey(id), meta.Encode(&serverpb.Server{Server: r.Server})),
		store.Put(meta.NodeKey(id), meta.Encode(fresh)))
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, meta.Conflict("nodes")
	}
	s.config.Logger.Info("node registered", "node", id, "address", r.Address,
		"region", r.Locality.GetRegion(), "zone", r.Locality.GetZone())
	return id, nil
}

// updateNode writes the changes of a known node, if there are any, on the same condition.
func (s *Nodes) updateNode(
	ctx context.Context, v *store.View, id keys.NodeID, r *clusterpb.RegisterNodeRequest,
	unchanged []*storepb.Compare,
) error {
	old, fresh := &clusterpb.Node{}, nodeRecord(id, r)
	revision, err := meta.Load(v, meta.NodeKey(id), old)
	if err != nil {
		return s.meta.Status(err)
	}
	// Fields that the core itself sets stay as they are.
	fresh.Status, fresh.Displaced = old.Status, old.Displaced
	fresh.AliveSinceUnixMs, fresh.SilentSinceUnixMs = old.AliveSinceUnixMs, old.SilentSinceUnixMs
	fresh.DiskSlowSinceUnixMs = old.DiskSlowSinceUnixMs
	if revision != 0 && proto.Equal(old, fresh) {
		return nil
	}
	moves := old.Address != fresh.Address
	if moves && revision != 0 {
		alive, err := v.Get(meta.AliveKey(id))
		if err != nil {
			return s.meta.Status(err)
		}
		if alive != nil {
			// The code is Unavailable, because the node may have moved: then the lease of its earlier life
			// ends soon.
			return hint.Unavailable("node %s is alive at %s, so it cannot be at %s: was its data "+
				"directory copied? (If the node moved, it can join when its lease of %s has run out.)",
				id, old.Address, fresh.Address, meta.NodeLeaseTime)
		}
	}
	if moves {
		if err := s.displace(ctx, v, id, fresh.Address); err != nil {
			return err
		}
	}
	ok, err := s.meta.Commit(ctx,
		append([]*storepb.Compare{store.ModifiedAt(meta.NodeKey(id), revision)}, unchanged...),
		store.Put(meta.NodeKey(id), meta.Encode(fresh)))
	if err == nil && !ok {
		err = meta.Conflict("node " + id.String())
	}
	if err == nil && moves {
		s.config.Logger.Info("node moved", "node", id, "from", old.Address, "to", fresh.Address)
	}
	return err
}
