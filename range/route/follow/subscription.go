package follow

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// subscriptions are the keyspaces whose partitions this sender needs to know. They only become
// more, until they are dropped: at most as many as the cluster has.
type subscriptions struct {
	mu  sync.Mutex
	all map[keys.KeyspaceID]struct{}
	// wake has the table stream ask for what was added. Capacity 1.
	wake chan struct{}
}

func (w *subscriptions) init() {
	w.all = make(map[keys.KeyspaceID]struct{})
	w.wake = make(chan struct{}, 1)
}

// add subscribes to a keyspace, and wakes the stream if that is new.
func (w *subscriptions) add(id keys.KeyspaceID) {
	w.mu.Lock()
	_, known := w.all[id]
	w.all[id] = struct{}{}
	w.mu.Unlock()
	if known {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *subscriptions) forget(ids []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		delete(w.all, keys.KeyspaceID(id))
	}
}

// missing are the subscribed keyspaces that are not in asked, to which it adds them.
func (w *subscriptions) missing(asked map[keys.KeyspaceID]struct{}) (ids []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.all {
		if _, ok := asked[id]; !ok {
			asked[id] = struct{}{}
			ids = append(ids, uint32(id))
		}
	}
	return ids
}

// tableStream is a stream of the table.
type tableStream interface {
	Recv() (*clusterpb.TableUpdate, error)
}

// followStream is a stream that was asked for some keyspaces.
type followStream struct {
	clusterpb.Cluster_FollowTableClient
	asking sync.WaitGroup
}

// errNoFollow says that a server does not know FollowTable: it is of an earlier version.
var errNoFollow = errors.New("the server sends whole tables only")

// follow asks for what is wanted, with the latest token: at once, and whenever there is more or
// another token, until the stream's context ends. Wait for asking then.
func (w *subscriptions) follow(stream clusterpb.Cluster_FollowTableClient,
	client *identity.Identity) (*followStream, error) {
	f := &followStream{Cluster_FollowTableClient: stream}
	asked, shown := make(map[keys.KeyspaceID]struct{}), uint64(0)
	next := func() *clusterpb.FollowTableRequest {
		r := &clusterpb.FollowTableRequest{Keyspaces: w.missing(asked)}
		if text, number := client.Known(); number > shown {
			r.Token, shown = text, number
		}
		return r
	}
	if err := stream.Send(next()); err != nil {
		return nil, err
	}
	f.asking.Go(func() {
		for {
			select {
			case <-w.wake:
			case <-client.News():
			case <-stream.Context().Done():
				return
			}
			r := next()
			if len(r.Keyspaces) == 0 && r.Token == "" {
				continue
			}
			if stream.Send(r) != nil {
				return // Recv says why
			}
		}
	})
	return f, nil
}

// Recv implements tableStream.
func (f *followStream) Recv() (*clusterpb.TableUpdate, error) {
	u, err := f.Cluster_FollowTableClient.Recv()
	if status.Code(err) == codes.Unimplemented {
		err = errNoFollow
	}
	return u, err
}

// wholeStream is a stream of everything, from a server that does not know FollowTable.
type wholeStream struct {
	clusterpb.Cluster_WatchTableClient
}

// Recv implements tableStream.
func (w wholeStream) Recv() (*clusterpb.TableUpdate, error) {
	u, err := w.Cluster_WatchTableClient.Recv()
	if u != nil {
		u.FollowsAll = u.FollowsAll || u.Complete
	}
	return u, err
}
