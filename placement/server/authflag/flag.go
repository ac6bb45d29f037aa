package authflag

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Load reads the record and the revision at which it was written. The revision is 0 if there is no
// record.
func Load(v *store.View) (*clusterpb.GuardState, uint64, error) {
	g := &clusterpb.GuardState{}
	revision, err := meta.Load(v, []byte(meta.GuardKey), g)
	return g, revision, err
}

// Change returns the record, or changes it, and lists the servers that prevent authentication from
// being enabled. Only the leader answers.
func (f *Flag) Change(
	ctx context.Context, r *clusterpb.GuardingRequest,
) (*clusterpb.GuardingResponse, error) {
	if err := f.config.Meta.CheckCluster(r.Cluster); err != nil {
		return nil, err
	}
	v, done, err := f.config.Meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	guard, revision, err := Load(v)
	if err != nil {
		return nil, f.config.Meta.Status(err)
	}
	change := false
	var ops []*storepb.Op
	switch r.Do {
	case clusterpb.GuardingRequest_SHOW:
	case clusterpb.GuardingRequest_BEGIN:
		guard.Version, guard.On, guard.Ending, change = guard.Version+1, true, false, true
	case clusterpb.GuardingRequest_END:
		if change = guard.On && guard.Version == r.Version; change {
			guard.Version, guard.On, guard.Ending = guard.Version+1, !guard.Ending, !guard.Ending
			if !guard.On {
				ops = append(ops, store.Delete([]byte(meta.RecoveredKey)))
			}
		}
	default:
		return nil, status.Errorf(codes.InvalidArgument, "this version does not know how to do %d",
			r.Do)
	}
	if change {
		ok, err := f.config.Meta.Commit(ctx,
			[]*storepb.Compare{store.ModifiedAt([]byte(meta.GuardKey), revision)},
			append(ops, store.Put([]byte(meta.GuardKey), meta.Encode(guard)))...)
		if err == nil && !ok {
			err = meta.Conflict("whether servers follow users and roles")
		}
		if err != nil {
			return nil, err
		}
		f.config.Logger.Info("whether servers follow users and roles has changed", "follow", guard.On,
			"ending", guard.Ending, "version", guard.Version)
	}
	return f.unguarded(ctx, v, guard)
}

// unguarded lists the servers that prevent authentication from being enabled.
func (f *Flag) unguarded(
	ctx context.Context, v *store.View, guard *clusterpb.GuardState,
) (*clusterpb.GuardingResponse, error) {
	response := &clusterpb.GuardingResponse{Guard: guard}
	add := func(node keys.NodeID, address string, report *report) {
		open, behind := report.lacks(guard)
		if open != "" {
			response.Open = append(response.Open, &clusterpb.UnguardedServer{Node: uint64(node),
				Address: address, Reason: open})
		}
		if behind != "" {
			response.Behind = append(response.Behind, &clusterpb.UnguardedServer{Node: uint64(node),
				Address: address, Reason: behind})
		}
		if behind != "" && node != 0 {
			f.config.Notify(node)
		}
	}
	for n, err := range meta.All[clusterpb.Node](v, []byte(meta.NodePrefix)) {
		if err != nil {
			return nil, f.config.Meta.Status(err)
		}
		if n.Status != clusterpb.NodeStatus_NODE_GONE {
			said, _ := f.of(keys.NodeID(n.Id), 0)
			add(keys.NodeID(n.Id), n.Address, said)
		}
	}
	for _, m := range f.config.Store.Members().GetMembers() {
		_, said := f.of(0, m.Server)
		add(0, m.Address, said)
	}
	return response, ctx.Err()
}
