package console

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// coordinationView is the feed "coord": the coordination store, and the locks and elections in it.
type coordinationView struct {
	Members []memberView `json:"members"`
	// Revision is the newest revision of the store. Bytes is its size. Keys is its number of keys.
	Revision int64  `json:"revision"`
	Bytes    int64  `json:"bytes"`
	Keys     int64  `json:"keys"`
	Leases   int    `json:"leases"`
	Watches  int    `json:"watches"`
	Version  string `json:"version,omitempty"`
	// Listed has some leases with their keys.
	Listed []leaseView `json:"leaseList"`
	// Locks and Elections are those of package kv/coord with the default prefix.
	Locks     []queueView `json:"locks"`
	Elections []queueView `json:"elections"`
	// More: there are more keys of locks or elections than queueKeys. Only the oldest ones are counted.
	More bool `json:"more,omitempty"`
	// Unknown says which data could not be read, and why.
	Unknown string `json:"unknown,omitempty"`
}

type leaseView struct {
	ID      string `json:"id"`
	TTL     int64  `json:"ttl"`     // seconds left
	Granted int64  `json:"granted"` // seconds
	Keys    int    `json:"keys"`
	First   string `json:"first,omitempty"` // a key
}

// queueView is a lock or an election.
type queueView struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Holder is the first holder. Holders counts all: readers hold a lock together.
	Holder  string `json:"holder"`
	Holders int    `json:"holders"`
	Since   int64  `json:"revision"`
	Waiting int    `json:"waiting"`
}

// These limit the data of the coordination store that is shown.
const (
	leasesShown = 30
	queueKeys   = 500
)

// readersAndWriters is a kind of queue.
const readersAndWriters = "lock of readers and writers"

func (c *Console) coordination(ctx context.Context, v *viewer, cluster Cluster, _ url.Values) (any,
	error) {
	core, err := v.known.core.get(ctx, coreAge, cluster.CoreHealth)
	if err != nil {
		return nil, err
	}
	view := &coordinationView{Members: []memberView{}, Listed: []leaseView{}, Locks: []queueView{},
		Elections: []queueView{}, Watches: c.watches()}
	for _, m := range core.Members {
		view.Members = append(view.Members, memberOf(m))
	}
	etcd, err := cluster.Etcd(ctx)
	if err == nil {
		err = view.ask(ctx, etcd)
	}
	if err != nil {
		view.Unknown = err.Error()
	}
	return view, nil
}

// watches counts the watches that this process serves.
func (c *Console) watches() (count int) {
	if c.config.Metrics == nil {
		return 0
	}
	families, _ := c.config.Metrics.Gather() // the metrics that could be read are shown
	for _, f := range families {
		if f.GetName() != "tidemark_placement_store_watchers" {
			continue
		}
		for _, m := range f.Metric {
			count += int(m.GetGauge().GetValue())
		}
	}
	return count
}

func (v *coordinationView) ask(ctx context.Context, etcd *clientv3.Client) error {
	for _, endpoint := range etcd.Endpoints()[:min(1, len(etcd.Endpoints()))] {
		status, err := etcd.Status(ctx, endpoint)
		if err != nil {
			return fmt.Errorf("the state of the store: %w", err)
		}
		v.Bytes, v.Version = status.DbSize, status.Version
	}
	leases, err := etcd.Leases(ctx)
	if err != nil {
		return fmt.Errorf("the leases: %w", err)
	}
	v.Leases = len(leases.Leases)
	for _, l := range leases.Leases[:min(len(leases.Leases), leasesShown)] {
		left, err := etcd.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			return fmt.Errorf("the lease %x: %w", int64(l.ID), err)
		}
		lease := leaseView{ID: fmt.Sprintf("%016x", int64(l.ID)), TTL: left.TTL,
			Granted: left.GrantedTTL, Keys: len(left.Keys)}
		if len(left.Keys) > 0 {
			lease.First = keyText(left.Keys[0])
		}
		v.Listed = append(v.Listed, lease)
	}
	count, err := etcd.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err == nil {
		v.Keys, v.Revision = count.Count, count.Header.Revision
	}
	for _, kind := range []struct {
		part, name string
		into       *[]queueView
	}{{"lock/", "lock", &v.Locks}, {"rwlock/", readersAndWriters, &v.Locks},
		{"election/", "election", &v.Elections}} {
		if err := v.queues(ctx, etcd, coord.DefaultPrefix+kind.part, kind.name,
			kind.into); err != nil {
			return fmt.Errorf("the keys below %s: %w", coord.DefaultPrefix+kind.part, err)
		}
	}
	return nil
}

// queues reads holders and waiters: the keys below NAME/, in the order of their creation.
func (v *coordinationView) queues(ctx context.Context, etcd *clientv3.Client, prefix, kind string,
	into *[]queueView) error {
	found, err := etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithLimit(queueKeys),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return err
	}
	v.More = v.More || found.More
	*into = append(*into, queuesOf(found.Kvs, prefix, kind)...)
	return nil
}

// queuesOf makes queues from the keys below a prefix: NAME/MEMBER, in the order of their creation.
// The first member holds the lock. The members of locks of readers and writers begin with read/ or
// write/: if the first is a reader, so do all readers before the first writer.
func queuesOf(pairs []*mvccpb.KeyValue, prefix, kind string) (queues []queueView) {
	at, shared := map[string]int{}, map[string]bool{}
	for _, pair := range pairs {
		name, member, ok := strings.Cut(strings.TrimPrefix(string(pair.Key), prefix), "/")
		if !ok {
			continue
		}
		reads := strings.HasPrefix(member, "read/")
		if i, known := at[name]; known {
			if shared[name] = shared[name] && reads; shared[name] {
				queues[i].Holders++
			} else {
				queues[i].Waiting++
			}
			continue
		}
		at[name], shared[name] = len(queues), reads && kind == readersAndWriters
		q := queueView{Name: name, Kind: kind, Holder: keyText([]byte(member)), Holders: 1,
			Since: pair.CreateRevision}
		if plain, err := url.PathUnescape(name); err == nil {
			q.Name = plain
		}
		if pair.Lease != 0 {
			q.Holder = fmt.Sprintf("session %016x", pair.Lease)
		}
		queues = append(queues, q)
	}
	return queues
}
