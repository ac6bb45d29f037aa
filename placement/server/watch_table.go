package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// nameTimeout limits how long a server waits until its own table has a keyspace that exists
	// according to the core.
	nameTimeout = 10 * time.Second
	// maxRows limits the number of partitions and of leaders in one message of WatchTable.
	maxRows = 2000
)

// WatchTable implements clusterpb.ClusterServer, from this server's own table.
func (s *ClusterService) WatchTable(
	r *clusterpb.WatchTableRequest, stream clusterpb.Cluster_WatchTableServer,
) error {
	ctx := stream.Context()
	if r.Keyspace != "" && !keyspaces.ValidName(r.Keyspace) {
		return meta.UnknownKeyspace(r.Keyspace)
	}
	source := s.table()
	if source == nil {
		return status.Error(codes.Unavailable, "this server is starting: it has no partition table yet")
	}
	return table.SendTo(ctx, s.cut.Inc, stream.Send,
		func(ctx context.Context, send func(*clusterpb.TableUpdate) error) error {
			viewer := s.viewer(ctx)
			return s.watch(ctx, r.Keyspace, send, func(ctx context.Context, emit veil.Emit) error {
				return viewer.Follow(ctx, func(ctx context.Context, emit veil.Emit) error {
					return source.Subscribe(ctx, emit)
				}, emit)
			})
		})
}

// watch sends the table, or the part that belongs to one keyspace, and then its changes.
func (s *ClusterService) watch(
	ctx context.Context, keyspace string, send veil.Emit,
	subscribe func(context.Context, veil.Emit) error,
) error {
	if keyspace == "" {
		if err := s.sendClockOffset(send); err != nil {
			return err
		}
		return subscribe(ctx, func(u *clusterpb.TableUpdate) error {
			return sendPieces(u, send)
		})
	}
	for {
		err := s.watchKeyspace(ctx, keyspace, send, subscribe)
		if !errors.Is(err, errArrived) {
			return err
		}
	}
}

// sendClockOffset sends the first message of a stream.
func (s *ClusterService) sendClockOffset(send func(*clusterpb.TableUpdate) error) error {
	d := s.config.MaxClockOffset
	if d <= 0 {
		return nil
	}
	return send(&clusterpb.TableUpdate{MaxClockOffsetMicros: uint64(d.Microseconds())})
}

// errArrived means that a keyspace has become known to this server, so that its whole content can
// be sent.
var errArrived = errors.New("the keyspace has arrived")

// watchKeyspace sends the part of the table that belongs to one keyspace. It sends nothing until
// the keyspace is known, so that the caller gets only an error if the keyspace does not exist.
func (s *ClusterService) watchKeyspace(
	ctx context.Context, name string, send veil.Emit,
	subscribe func(context.Context, veil.Emit) error,
) error {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	f := filter{name: name, partitions: map[uint64]struct{}{}}
	var held []*clusterpb.TableUpdate
	var overdue *time.Timer
	err := subscribe(limited, func(u *clusterpb.TableUpdate) error {
		u = f.apply(u)
		switch {
		case f.id != 0 && overdue != nil:
			return errArrived
		case f.id != 0:
			for _, u := range append(held, u) {
				if err := sendPieces(u, send); err != nil {
					return err
				}
			}
			held = nil
		case overdue != nil:
		case u.Complete:
			if err := s.mustExist(ctx, name); err != nil {
				return err
			}
			overdue = time.AfterFunc(nameTimeout, cancel)
		default:
			held = append(held, u)
		}
		return nil
	})
	if overdue != nil && !overdue.Stop() && ctx.Err() == nil && !errors.Is(err, errArrived) {
		return status.Errorf(codes.Unavailable,
			"keyspace %s exists, and this server has not heard of it yet; try another or again", name)
	}
	return err
}

// mustExist asks the core about a keyspace that this server does not know. It returns an error if
// the keyspace does not exist.
func (s *ClusterService) mustExist(ctx context.Context, name string) error {
	list, err := s.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	for _, info := range list.Keyspaces {
		if info.Keyspace.Name == name && info.Keyspace.State != clusterpb.KeyspaceState_DROPPING {
			return nil
		}
	}
	return meta.UnknownKeyspace(name)
}

// filter keeps the part of a table that belongs to one keyspace, and all nodes.
type filter struct {
	name string
	// id is 0 until the keyspace is known.
	id         uint32
	partitions map[uint64]struct{}
}

func (f *filter) apply(u *clusterpb.TableUpdate) *clusterpb.TableUpdate {
	out := &clusterpb.TableUpdate{
		Nodes: u.Nodes, RemovedNodes: u.RemovedNodes, Revision: u.Revision, Complete: u.Complete,
		Reset_: u.Reset_, Cluster: u.Cluster,
	}
	for _, k := range u.Keyspaces {
		if f.id == 0 && k.Name == f.name && k.State != clusterpb.KeyspaceState_DROPPING {
			f.id = k.Id
		}
		if k.Id == f.id {
			out.Keyspaces = append(out.Keyspaces, k)
		}
	}
	for _, id := range u.RemovedKeyspaces {
		if id == f.id {
			out.RemovedKeyspaces = append(out.RemovedKeyspaces, id)
		}
	}
	for _, p := range u.Partitions {
		if f.id != 0 && p.Keyspace == f.id {
			out.Partitions = append(out.Partitions, p)
			f.partitions[p.Id] = struct{}{}
		}
	}
	for _, l := range u.Leaders {
		if _, ok := f.partitions[l.Partition]; ok {
			out.Leaders = append(out.Leaders, l)
		}
	}
	for _, id := range u.RemovedPartitions {
		if _, ok := f.partitions[id]; ok {
			out.RemovedPartitions = append(out.RemovedPartitions, id)
			delete(f.partitions, id)
		}
	}
	return out
}

// sendPieces sends an update in messages of limited size. Only the first message has Reset, and
// only the last one has Complete.
func sendPieces(u *clusterpb.TableUpdate, send func(*clusterpb.TableUpdate) error) error {
	for len(u.Partitions) > maxRows || len(u.Leaders) > maxRows {
		p, l := min(maxRows, len(u.Partitions)), min(maxRows, len(u.Leaders))
		piece := &clusterpb.TableUpdate{Partitions: u.Partitions[:p], Leaders: u.Leaders[:l],
			Reset_: u.Reset_, Cluster: u.Cluster}
		u = &clusterpb.TableUpdate{
			Nodes: u.Nodes, Keyspaces: u.Keyspaces, Partitions: u.Partitions[p:], Leaders: u.Leaders[l:],
			RemovedNodes: u.RemovedNodes, RemovedKeyspaces: u.RemovedKeyspaces,
			RemovedPartitions: u.RemovedPartitions,
			Revision:          u.Revision, Complete: u.Complete, Cluster: u.Cluster,
			Followed: u.Followed, FollowsAll: u.FollowsAll,
		}
		if err := send(piece); err != nil {
			return err
		}
	}
	return send(u)
}
